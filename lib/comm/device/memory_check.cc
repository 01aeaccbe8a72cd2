// comm/device/memory_check.cc: see device_memory.h. A buffer may span several adjacent allocations, as with PyTorch's
// expandable segments; each is checked.
#include <algorithm>

#include "base/error.h"
#include "comm/device/device_memory.h"

namespace gsel {
namespace {

// A library that accesses memory closed to a device corrupts other memory or ends the process.
void refuse_closed(const Accelerator& accelerator, std::span<const int32_t> reached_by, const char* function,
                   const void* memory, const char* name) {
  if (!accelerator.device->table().memory_closed) return;
  for (const int32_t ordinal : reached_by) {
    int32_t is_closed = 0;
    accelerator.device->run(&gsel_device_v1::memory_closed, memory, ordinal, &is_closed);
    if (is_closed)
      fail(GSEL_ERR_ARG,
           "{}: {} is memory of {} that device {} may not access, and a rank of this process works on that device: {} "
           "reaches buffers where they are; give the device access (cuMemSetAccess), use memory of gsel_mem_alloc, or "
           "make each rank a process",
           function, name, accelerator.name, ordinal, accelerator.transport_name);
  }
}

}  // namespace

void check_device_memory(const Accelerator& accelerator, std::span<const int32_t> reached_by, const char* function,
                         const void* memory, uint64_t bytes, const char* name) {
  const auto begin = reinterpret_cast<uintptr_t>(memory);
  for (uint64_t looked = 0; looked < bytes;) {
    gsel_memory_info info{};
    info.struct_size = sizeof info;
    accelerator.device->run(&gsel_device_v1::memory_of, reinterpret_cast<const void*>(begin + looked), &info);
    if (looked > 0 && (info.kind != GSEL_MEMORY_DEVICE || info.ordinal != accelerator.ordinal || info.bytes == 0))
      fail(GSEL_ERR_ARG, "{}: {} needs {} bytes and its memory on {} ends after {}", function, name, bytes,
           accelerator.name, looked);
    if (info.kind == GSEL_MEMORY_HOST)
      fail(GSEL_ERR_ARG,
           "{}: {} is memory of the host, and the communicator works on {}; use memory of this device or page-locked "
           "memory, or a communicator without an accelerator",
           function, name, accelerator.name);
    if (info.kind == GSEL_MEMORY_DEVICE && info.ordinal != accelerator.ordinal)
      fail(GSEL_ERR_ARG, "{}: {} is memory of device {}, and the communicator works on {}", function, name,
           info.ordinal, accelerator.name);
    if (info.kind == GSEL_MEMORY_DEVICE)
      refuse_closed(accelerator, reached_by, function, reinterpret_cast<const void*>(begin + looked), name);
    if (info.bytes == 0) return;  // the driver does not report the size
    const uint64_t end = reinterpret_cast<uintptr_t>(info.base) + info.bytes - begin;
    if (info.kind != GSEL_MEMORY_DEVICE && end < bytes)
      fail(GSEL_ERR_ARG, "{}: {} needs {} bytes and its page-locked memory ends after {}", function, name, bytes, end);
    looked = std::max(end, looked + 1);
  }
}

}  // namespace gsel
