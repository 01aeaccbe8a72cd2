// base/available.h: how much memory is available at this moment. Does not know what the memory is for.
#pragma once

#include <cstdint>

namespace gsel::os {

// Bytes that this process can allocate without evicting the memory of other processes, within the limits of the host
// and of its control groups; UINT64_MAX where neither is known.
uint64_t available_memory();

}  // namespace gsel::os
