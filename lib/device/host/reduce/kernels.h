// device/host/reduce/kernels.h: reduction of several inputs into one output, in the order given. Does not know ranks.
#pragma once

#include <gsel/comm.h>

#include <cstddef>

namespace gsel::host {

constexpr size_t kMostRecordBytes = 4096;  // of elements that are never cut

// What is folded and how. op is one that the type has.
struct Fold {
  gsel_dtype dtype = 0;
  gsel_op op = 0;
  int32_t order = GSEL_ORDER_RANKS;
  const double* factors = nullptr;  // [n] of GSEL_SCALED_SUM
  gsel_op_fn function = nullptr;    // of GSEL_OP_USER
  size_t record = 1;                // elements that are never cut
  void* user_data = nullptr;
  // A fold in parts: of a type that is computed in f32, where the order matters, what the inputs before gave, and
  // whether out gets the same rather than the type. [count] f32.
  const float* before = nullptr;
  bool partial = false;
  int averaged = 0;  // inputs of the whole average; 0: n
};

// out[i] = in[0][first + i] op in[1][first + i] op ..., by the rules of gsel/types.h. out may be one of the inputs and
// overlaps none in part. One input is copied as it is, unless it is scaled. Throws GSEL_ERR_CALLBACK.
void reduce(const Fold& fold, void* out, const void* const* in, int n, size_t count, size_t first = 0);

// The same result in outs[n_outs], each of which may be one of the inputs and overlaps none in part. Tile by tile: what
// was just reduced is still in the first-level cache when it goes out. `streaming`: past the caches, with a fence at
// the end, for results that nobody here reads soon.
void reduce_to(const Fold& fold, void* const* outs, int n_outs, const void* const* in, int n, size_t count,
               bool streaming);

// memcpy past the caches where the processor can, with a fence at the end. Any alignment; no overlap.
void copy_streaming(void* dst, const void* src, size_t bytes);

// The same loops stand compiled for several instruction sets; reduce() uses the last of those this processor has.
// All give the same bits.
enum class Isa { baseline, avx2, avx512 };
constexpr Isa kIsas[] = {Isa::baseline, Isa::avx2, Isa::avx512};
bool has_isa(Isa isa);
Isa best_isa();
void reduce_with(Isa isa, const Fold& fold, void* out, const void* const* in, int n, size_t count, size_t first = 0);

}  // namespace gsel::host
