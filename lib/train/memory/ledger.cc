// train/memory/ledger.cc: see ledger.h.
#include "train/memory/ledger.h"

#include <algorithm>

namespace gsel {

const char* memory_part_name(MemoryPart part) {
  static const char* const names[kMemoryParts] = {"parameters",
                                                  "gradients",
                                                  "optimizer state",
                                                  "master copy",
                                                  "compression",
                                                  "values and windows",
                                                  "staging",
                                                  "copy until a step is validated",
                                                  "optimizer state and master copy, offload memory",
                                                  "parameters, offload memory",
                                                  "copies of train.redundancy, host memory"};
  return names[static_cast<size_t>(part)];
}

uint64_t total_bytes(const MemoryPartBytes& parts) {
  uint64_t total = 0;
  for (size_t i = 0; i < kMemoryParts; ++i)
    if (!is_offloaded(static_cast<MemoryPart>(i))) total += parts[i];
  return total;
}

void Ledger::refuse(MemoryPart part, uint64_t bytes) const {
  const uint64_t taken = total_bytes(now_);
  if (budget_ && !is_offloaded(part) && bytes > budget_ - std::min(taken, budget_))
    fail(GSEL_ERR_NOMEM, "{} needs {} bytes more; {} of the {} bytes that train.memory_bytes allows are taken",
         memory_part_name(part), bytes, taken, budget_);
}

void Ledger::take(MemoryPart part, uint64_t bytes) {
  const auto i = static_cast<size_t>(part);
  refuse(part, bytes);
  now_[i] += bytes;
  peak_[i] = std::max(peak_[i], now_[i]);
  peak_total_ = std::max(peak_total_, total_bytes(now_));
}

void Ledger::give_back(MemoryPart part, uint64_t bytes) {
  now_[static_cast<size_t>(part)] -= bytes;
}

CountedMemory::CountedMemory(std::shared_ptr<DeviceContext> device, Ledger& ledger, MemoryPart part, uint64_t bytes)
    : part_(part) {
  if (bytes == 0) return;
  ledger.refuse(part, bytes);
  try {
    memory_ = Memory(std::move(device), bytes);
  } catch (const Error& e) {
    if (e.code() != GSEL_ERR_NOMEM) throw;
    throw Error(GSEL_ERR_NOMEM, fmt::format("{} needs {} bytes beside {} that the trainer has: {}",
                                            memory_part_name(part), bytes, total_bytes(ledger.now()), e.message()));
  }
  ledger.take(part, bytes);
  ledger_ = &ledger;
}

CountedMemory::~CountedMemory() {
  if (ledger_) ledger_->give_back(part_, memory_.bytes());
}

void CountedMemory::swap(CountedMemory& other) noexcept {
  std::swap(memory_, other.memory_);
  std::swap(ledger_, other.ledger_);
  std::swap(part_, other.part_);
}

}  // namespace gsel
