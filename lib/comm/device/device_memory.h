// comm/device/device_memory.h: memory of a device that gsel_mem_alloc gave. It belongs to no communicator alone: it
// lives until it is freed, or until the last of the communicators that were made from one another is. Any thread.
#pragma once

#include <gsel/transport.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>

#include "device/device.h"

namespace gsel {

class Transport;

class DeviceMemory {
 public:
  explicit DeviceMemory(std::shared_ptr<DeviceContext> device) : device_(std::move(device)) {}
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  // Filled with zeros. transport: nullptr, or what is to register it.
  void* alloc(uint64_t bytes, const std::shared_ptr<Transport>& transport);
  void free(void* memory);  // GSEL_ERR_ARG for what alloc has not given

 private:
  void give_back(void* memory, Transport* transport) noexcept;

  std::shared_ptr<DeviceContext> device_;
  std::mutex mutex_;
  std::map<void*, std::shared_ptr<Transport>> allocations_;
};

struct Accelerator;

// Whether the buffers of a call are memory that the device reaches. Asks the device in every call: what an address
// means changes when memory is freed and given out again. GSEL_ERR_ARG for memory of the host that is not page-locked,
// for that of another device, for a buffer that ends before `bytes`, and for one that is closed to a device of
// reached_by. function, name: whose buffer it is. memory_check.cc
void check_device_memory(const Accelerator& accelerator, std::span<const int32_t> reached_by, const char* function,
                         const void* memory, uint64_t bytes, const char* name);

}  // namespace gsel
