// comm/shm/kernels.h: reduction of several inputs into one output, in the order given. Refuses to know ranks.
#pragma once

#include <gsel/types.h>

#include <cstddef>

namespace gsel::shm {

bool can_reduce(gsel_dtype dtype);  // integers, f32, f64

// out[i] = in[0][i] op in[1][i] op ... in[n-1][i], from the left. out may be one of the inputs. AVG divides the sum by
// n at the end; for integers the quotient is truncated. Integer sums and products wrap around.
void reduce(gsel_dtype dtype, gsel_op op, void* out, const void* const* in, int n, size_t count);

}  // namespace gsel::shm
