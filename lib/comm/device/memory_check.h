// comm/device/memory_check.h: whether the buffers of a call are memory that the device reaches. Asks the device once
// for each allocation.
#pragma once

#include <cstdint>
#include <map>

#include "comm/device/accelerator.h"

namespace gsel {

class MemoryCheck {
 public:
  explicit MemoryCheck(const Accelerator& accelerator) : accelerator_(accelerator) {}
  // GSEL_ERR_ARG for memory of the host that is not page-locked, and for that of another device.
  void check(const char* function, const void* memory, uint64_t bytes, const char* name);

 private:
  const Accelerator& accelerator_;
  std::map<uintptr_t, uintptr_t> known_;  // end by begin, of what the device reaches
};

}  // namespace gsel
