// comm/device/device_memory.cc: see device_memory.h.
#include "comm/device/device_memory.h"

#include <algorithm>

#include "base/error.h"
#include "comm/device/accelerator.h"
#include "comm/device/transport.h"

namespace gsel {

DeviceMemory::~DeviceMemory() {
  for (const auto& [memory, transport] : allocations_) give_back(memory, transport.get());
}

void DeviceMemory::give_back(void* memory, Transport* transport) noexcept {
  if (!device_->may_free(memory)) return;
  if (transport)
    transport->table().memory_free(transport->ctx(), &device_->table(), device_->ctx(), memory);
  else
    device_->table().free(device_->ctx(), memory);
}

void* DeviceMemory::alloc(uint64_t bytes, const std::shared_ptr<Transport>& transport) {
  const uint64_t some = bytes > 0 ? bytes : 1;
  const bool by_transport = transport && transport->table().memory_alloc && transport->table().memory_free;
  void* memory = nullptr;
  if (by_transport) {
    gsel_error* err = nullptr;
    const gsel_status status =
        transport->table().memory_alloc(transport->ctx(), &device_->table(), device_->ctx(), some, &memory, &err);
    throw_if_failed(status, err);
  } else {
    device_->run(&gsel_device_v1::alloc, int32_t{GSEL_MEMORY_DEVICE}, some, &memory);
  }
  const std::shared_ptr<Transport> by = by_transport ? transport : nullptr;
  try {
    const Stream stream(device_);  // a separate stream, so as not to wait for other work
    device_->run(&gsel_device_v1::zero, memory, some, stream.get());
    device_->run(&gsel_device_v1::stream_wait, stream.get());
    const std::lock_guard lock(mutex_);
    allocations_.emplace(memory, by);
  } catch (...) {
    give_back(memory, by.get());
    throw;
  }
  return memory;
}

void DeviceMemory::free(void* memory) {
  if (!memory) return;
  std::shared_ptr<Transport> transport;
  {
    const std::lock_guard lock(mutex_);
    const auto found = allocations_.find(memory);
    if (found == allocations_.end())
      fail(GSEL_ERR_ARG,
           "gsel_mem_free: the memory is not of gsel_mem_alloc of this communicator or of one that it was made from");
    transport = found->second;
    allocations_.erase(found);
  }
  give_back(memory, transport.get());
}

// ---- buffers of calls -----------------------------------------------------------------------------------------------
// A buffer may span several adjacent allocations, as with PyTorch's expandable segments; each is checked.

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
           "{}: {} is memory of {} that device {} may not access, and a rank of this process works on that device, "
           "whose transport reaches buffers where they are; give the device access (cuMemSetAccess, "
           "hipMemSetAccess), use memory of gsel_mem_alloc, or make each rank a process",
           function, name, accelerator.name, ordinal);
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
