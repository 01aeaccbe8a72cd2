// device/host/reduce/kernels.h: reduces several inputs into one output, in the given order. Does not know ranks.
#pragma once

#include <gsel/comm.h>

#include <cstddef>

#include "device/host/isa/vector_loops.h"

namespace gsel::host {

constexpr size_t kMostRecordBytes = 4096;  // limit of Fold::record in bytes

// A reduction's type and operation; the type must support op.
struct Fold {
  gsel_dtype dtype = 0;
  gsel_op op = 0;
  int32_t order = GSEL_ORDER_RANKS;
  const double* factors = nullptr;  // [n], for GSEL_SCALED_SUM
  gsel_op_fn function = nullptr;    // for GSEL_OP_USER
  size_t record = 1;                // elements that must stay together
  void* user_data = nullptr;
  // Partial folds, of types that are computed in f32 where order matters. before: [count] f32, the result for earlier
  // inputs. partial: out gets f32 rather than dtype.
  const float* before = nullptr;
  bool partial = false;
  int averaged = 0;  // number of inputs of the whole average; 0: n
};

// out[i] = in[0][first + i] op in[1][first + i] op ..., by the rules of gsel/types.h. out may equal an input but not
// overlap one partly. A single input is copied, unless it is scaled. Throws GSEL_ERR_CALLBACK.
void reduce(const Fold& fold, void* out, const void* const* in, int n, size_t count, size_t first = 0);

// The same result to outs[n_outs]; each may equal an input but not overlap one partly. Works in tiles, so that results
// are written from the first-level cache. `streaming`: non-temporal stores with a final fence, for results that this
// rank does not read soon.
void reduce_to(const Fold& fold, void* const* outs, int n_outs, const void* const* in, int n, size_t count,
               bool streaming);

// memcpy with non-temporal stores if the processor has them, with a final fence. Any alignment; no overlap.
void copy_streaming(void* dst, const void* src, size_t bytes);

// reduce() uses best_isa().
void reduce_with(Isa isa, const Fold& fold, void* out, const void* const* in, int n, size_t count, size_t first = 0);

// reduce() for GSEL_OP_USER.
void fold_by_user(const Fold& fold, void* out, const void* const* in, int n, size_t count, size_t first);

}  // namespace gsel::host
