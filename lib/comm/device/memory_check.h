// comm/device/memory_check.h: whether the buffers of a call are memory that the device reaches. Asks the device in
// every call: what an address means changes when memory is freed and given out again.
#pragma once

#include <cstdint>
#include <span>

#include "comm/device/accelerator.h"

namespace gsel {

// GSEL_ERR_ARG for memory of the host that is not page-locked, for that of another device, and for a buffer that ends
// before `bytes`, and for one that is closed to a device of reached_by. function, name: whose buffer it is.
void check_device_memory(const Accelerator& accelerator, std::span<const int32_t> reached_by, const char* function,
                         const void* memory, uint64_t bytes, const char* name);

}  // namespace gsel
