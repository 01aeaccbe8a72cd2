/* support/reference.h: what a collective must give, computed by one thread the plain way: inputs folded from rank 0 up in
 * the type itself, element by element, so that results can be compared bit for bit. */
#ifndef GSEL_TESTS_REFERENCE_H
#define GSEL_TESTS_REFERENCE_H

#include <stdlib.h>
#include <string.h>

#include <gsel/gsel.h>

#define REFERENCE_INTEGERS(X) \
  X(GSEL_I8, int8_t) X(GSEL_U8, uint8_t) X(GSEL_I16, int16_t) X(GSEL_U16, uint16_t) \
  X(GSEL_I32, int32_t) X(GSEL_U32, uint32_t) X(GSEL_I64, int64_t) X(GSEL_U64, uint64_t)
#define REFERENCE_FLOATS(X) X(GSEL_F32, float) X(GSEL_F64, double)
/* Types that are only copied: their bits are filled. */
#define REFERENCE_BITS(X) \
  X(GSEL_F16, uint16_t) X(GSEL_BF16, uint16_t) X(GSEL_F8E4M3, uint8_t) X(GSEL_F8E5M2, uint8_t)

/* A number that depends on rank and element and repeats after a prime. */
static inline int reference_number(int32_t rank, size_t i) { return (int)((i * 31 + (size_t)rank * 17) % 97) - 40; }

/* x[count] = what `rank` contributes, starting with element `first`. */
static inline void reference_fill(gsel_dtype dtype, int32_t rank, void *x, size_t first, size_t count) {
#define FILL_INTEGER(tag, type) \
  case tag:                     \
    for (size_t i = 0; i < count; ++i) ((type *)x)[i] = (type)reference_number(rank, first + i); \
    break;
#define FILL_FLOAT(tag, type) \
  case tag:                   \
    for (size_t i = 0; i < count; ++i) ((type *)x)[i] = (type)reference_number(rank, first + i) / (type)(rank + 3); \
    break;
  switch (dtype) { REFERENCE_INTEGERS(FILL_INTEGER) REFERENCE_BITS(FILL_INTEGER) REFERENCE_FLOATS(FILL_FLOAT) }
#undef FILL_INTEGER
#undef FILL_FLOAT
}

static inline void reference_fold(gsel_dtype dtype, gsel_op op, void *a, const void *b, size_t count) {
#define FOLD(type, wide)                                                                   \
  for (size_t i = 0; i < count; ++i) {                                                     \
    type x = ((type *)a)[i], y = ((const type *)b)[i];                                     \
    ((type *)a)[i] = op == GSEL_PROD  ? (type)((wide)x * (wide)y)                          \
                     : op == GSEL_MIN ? (y < x ? y : x)                                    \
                     : op == GSEL_MAX ? (x < y ? y : x)                                    \
                                      : (type)((wide)x + (wide)y);                         \
  }                                                                                        \
  break;
#define FOLD_INTEGER(tag, type) case tag: FOLD(type, uint64_t)
#define FOLD_FLOAT(tag, type) case tag: FOLD(type, type)
  switch (dtype) { REFERENCE_INTEGERS(FOLD_INTEGER) REFERENCE_FLOATS(FOLD_FLOAT) }
#undef FOLD_INTEGER
#undef FOLD_FLOAT
#undef FOLD
}

static inline void reference_divide(gsel_dtype dtype, int32_t n, void *a, size_t count) {
#define DIVIDE(tag, type) \
  case tag:               \
    for (size_t i = 0; i < count; ++i) ((type *)a)[i] = (type)(((type *)a)[i] / (type)n); \
    break;
  switch (dtype) { REFERENCE_INTEGERS(DIVIDE) REFERENCE_FLOATS(DIVIDE) }
#undef DIVIDE
}

/* result[count] = op over the contributions of n ranks. */
static inline void reference_reduce(gsel_dtype dtype, gsel_op op, int32_t n, void *result, size_t count) {
  void *other = malloc(count * gsel_dtype_bytes(dtype) + 1);
  reference_fill(dtype, 0, result, 0, count);
  for (int32_t r = 1; r < n; ++r) {
    reference_fill(dtype, r, other, 0, count);
    reference_fold(dtype, op, result, other, count);
  }
  if (op == GSEL_AVG) reference_divide(dtype, n, result, count);
  free(other);
}

#endif
