// comm/device/device_memory.cc: see device_memory.h.
#include "comm/device/device_memory.h"

#include "base/error.h"
#include "comm/device/transport.h"

namespace gsel {

DeviceMemory::~DeviceMemory() {
  for (const auto& [memory, transport] : allocations_) give_back(memory, transport.get());
}

void DeviceMemory::give_back(void* memory, Transport* transport) noexcept {
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

}  // namespace gsel
