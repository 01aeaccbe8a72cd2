// comm/local.h: the reduction of the collectives over buffers of one process. Does not know communicators.
#pragma once

#include <gsel/comm.h>

namespace gsel {

// See gsel_reduce_local; checks its arguments.
void reduce_local(const void* const* inputs, size_t n, void* out, size_t count, gsel_dtype dtype, gsel_op op,
                  int32_t order);

}  // namespace gsel
