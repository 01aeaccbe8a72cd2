// comm/device/memory_check.cc: see memory_check.h.
#include "comm/device/memory_check.h"

#include <iterator>

#include "base/error.h"

namespace gsel {

void MemoryCheck::check(const char* function, const void* memory, uint64_t bytes, const char* name) {
  if (bytes == 0) return;
  const auto at = reinterpret_cast<uintptr_t>(memory);
  const auto above = known_.upper_bound(at);
  if (above != known_.begin() && std::prev(above)->second >= at + bytes) return;
  gsel_memory_info info{};
  info.struct_size = sizeof info;
  accelerator_.device->run(&gsel_device_v1::memory_of, memory, &info);
  if (info.kind == GSEL_MEMORY_HOST)
    fail(GSEL_ERR_ARG,
         "{}: {} is memory of the host, and the communicator works on {}; use memory of this device or page-locked "
         "memory, or a communicator without an accelerator",
         function, name, accelerator_.name);
  if (info.kind == GSEL_MEMORY_DEVICE && info.ordinal != accelerator_.ordinal)
    fail(GSEL_ERR_ARG, "{}: {} is memory of device {}, and the communicator works on {}", function, name, info.ordinal,
         accelerator_.name);
  const auto begin = reinterpret_cast<uintptr_t>(info.base);
  if (info.bytes == 0) return;
  if (at + bytes > begin + info.bytes)
    fail(GSEL_ERR_ARG, "{}: {} needs {} bytes and its allocation on {} ends after {}", function, name, bytes,
         accelerator_.name, begin + info.bytes - at);
  known_[begin] = begin + info.bytes;
}

}  // namespace gsel
