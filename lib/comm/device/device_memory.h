// comm/device/device_memory.h: device memory of gsel_mem_alloc. It is shared by the communicators that were made from
// one another, and lives until it is freed or the last of these communicators is. Any thread.
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

  // Zeroed. transport: allocates the memory if it can; may be nullptr.
  void* alloc(uint64_t bytes, const std::shared_ptr<Transport>& transport);
  void free(void* memory);  // GSEL_ERR_ARG if it is not from alloc

 private:
  void give_back(void* memory, Transport* transport) noexcept;

  std::shared_ptr<DeviceContext> device_;
  std::mutex mutex_;
  std::map<void*, std::shared_ptr<Transport>> allocations_;
};

struct Accelerator;

// Checks that a buffer is memory that the device can access. Asks the device in every call, since an address may be
// freed and reused. GSEL_ERR_ARG for host memory that is not page-locked, for memory of another device, for a buffer of
// less than `bytes`, and for memory that a device of reached_by cannot access. function, name: call and argument, for
// errors.
void check_device_memory(const Accelerator& accelerator, std::span<const int32_t> reached_by, const char* function,
                         const void* memory, uint64_t bytes, const char* name);

}  // namespace gsel
