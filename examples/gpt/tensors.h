/* tensors.h: sizes of what a call lends, and which part of a tensor that is. */
#ifndef GPT_TENSORS_H
#define GPT_TENSORS_H

#include <gsel/types.h>

/* The last dimension of a tensor, and how many rows of it there are. */
static inline int64_t width_of(const gsel_tensor* t) {
  return t->dims[t->n_dims - 1];
}
static inline int64_t rows_of(const gsel_tensor* t) {
  return t->n_elems / width_of(t);
}

/* Where what is here of a dimension begins: 0 where all of it is. */
static inline int64_t begin_of(const gsel_shard* shard, int32_t dim) {
  return shard->dim == dim ? shard->begin : 0;
}

#endif
