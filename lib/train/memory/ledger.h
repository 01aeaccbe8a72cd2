// train/memory/ledger.h: counts a trainer's memory by part and enforces the budget. Parameters, gradients, states,
// values and copies of a step or for other ranks go through it. Not counted: numbers of a step, which are page-locked
// or 64 bytes for each piece of a parameter and each bucket with some 80 bytes more; what a recorded graph keeps;
// scratch of a device plugin, and the 4 bytes of a link of nccl; copies of saves.
#pragma once

#include <array>
#include <memory>
#include <string>

#include "device/device.h"

namespace gsel {

enum class MemoryPart : uint8_t {
  params,       // whole parameters, or shards
  gradients,    // the same for gradients
  state,        // optimizer state
  master,       // f32 copies of 16-bit parameters
  compression,  // error feedback and factors of compressed reductions
  windows,      // one arena: values, their gradients, saved bytes, gathered parameters, whole gradients of sharded ones
  staging,      // scratch memory of collectives and casts, and buffers of a device for offloaded state
  step_copy,    // what an optimistic step changes, until it is validated
  offload_state,   // offload memory: optimizer state and master copies
  offload_params,  // offload memory: shards of parameters
  copies,          // of train.redundancy, in host memory
};
constexpr size_t kMemoryParts = 11;
const char* memory_part_name(MemoryPart part);
constexpr bool is_offloaded(MemoryPart part) {
  return part >= MemoryPart::offload_state;
}

using MemoryPartBytes = std::array<uint64_t, kMemoryParts>;
// Sum of all parts except offload memory.
uint64_t total_bytes(const MemoryPartBytes& parts);
// "310.5 MiB"; below 1 KiB "12 bytes".
std::string human_bytes(uint64_t bytes);
// One line per non-empty part, then the total of device memory: name, human units, bytes; aligned.
std::string memory_table(const MemoryPartBytes& parts);

class Ledger {
 public:
  explicit Ledger(uint64_t budget) : budget_(budget) {}  // budget 0: unlimited
  // GSEL_ERR_NOMEM, naming the part, when so many bytes more exceed the budget.
  void refuse(MemoryPart part, uint64_t bytes) const;
  // The same, else counts them.
  void take(MemoryPart part, uint64_t bytes);
  void give_back(MemoryPart part, uint64_t bytes);
  const MemoryPartBytes& now() const { return now_; }
  const MemoryPartBytes& peak() const { return peak_; }  // by part
  uint64_t peak_total() const { return peak_total_; }    // of the sum, without offload memory

 private:
  uint64_t budget_;
  MemoryPartBytes now_{}, peak_{};
  uint64_t peak_total_ = 0;
};

// Device memory counted in a ledger, which must outlive it. 0 bytes: nullptr.
class CountedMemory {
 public:
  CountedMemory() = default;
  CountedMemory(std::shared_ptr<DeviceContext> device, Ledger& ledger, MemoryPart part, uint64_t bytes);
  CountedMemory(CountedMemory&& other) noexcept { swap(other); }
  CountedMemory& operator=(CountedMemory&& other) noexcept {
    swap(other);
    return *this;
  }
  ~CountedMemory();

  void* data() const { return memory_.data(); }
  char* at(uint64_t offset) const { return memory_.at(offset); }
  uint64_t bytes() const { return memory_.bytes(); }

 private:
  void swap(CountedMemory& other) noexcept;
  Memory memory_;
  Ledger* ledger_ = nullptr;
  MemoryPart part_ = MemoryPart::params;
};

}  // namespace gsel
