// comm/shm/kernels.h: reduction of several inputs into one output, in the order given. Refuses to know ranks.
#pragma once

#include <gsel/types.h>

#include <cstddef>

namespace gsel::shm {

// out[i] = in[0][i] op in[1][i] op ... in[n-1][i], from the left, by the rules of gsel/types.h. op is one that
// the type has. out may be one of the
// inputs and overlaps none in part. One input is copied as it is.
void reduce(gsel_dtype dtype, gsel_op op, void* out, const void* const* in, int n, size_t count);

// The same loops stand compiled for several instruction sets; reduce() uses the last of those this processor has.
// All give the same bits.
enum class Isa { baseline, avx2, avx512 };
constexpr Isa kIsas[] = {Isa::baseline, Isa::avx2, Isa::avx512};
bool has_isa(Isa isa);
void reduce_with(Isa isa, gsel_dtype dtype, gsel_op op, void* out, const void* const* in, int n, size_t count);

}  // namespace gsel::shm
