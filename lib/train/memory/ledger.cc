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

std::string human_bytes(uint64_t bytes) {
  static const char* const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB"};
  auto size = static_cast<double>(bytes);
  size_t unit = 0;
  while (size >= 1024 && unit + 1 < std::size(units)) {
    size /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} bytes", bytes) : fmt::format("{:.1f} {}", size, units[unit]);
}

std::string memory_table(const MemoryPartBytes& parts) {
  std::vector<std::pair<std::string, uint64_t>> rows;
  for (size_t i = 0; i < kMemoryParts; ++i)
    if (parts[i]) rows.emplace_back(memory_part_name(static_cast<MemoryPart>(i)), parts[i]);
  rows.emplace_back("total without offload memory", total_bytes(parts));
  size_t name_width = 0, human_width = 0, bytes_width = 0;
  for (const auto& [name, bytes] : rows) {
    name_width = std::max(name_width, name.size());
    human_width = std::max(human_width, human_bytes(bytes).size());
    bytes_width = std::max(bytes_width, std::to_string(bytes).size());
  }
  std::string text;
  for (const auto& [name, bytes] : rows)
    text += fmt::format("\n  {:<{}}  {:>{}}  {:>{}} bytes", name, name_width, human_bytes(bytes), human_width, bytes,
                        bytes_width);
  return text;
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

// The check before anything is allocated has found enough, or had no bound.
static std::string text_of_lack(const DeviceContext& device, const Ledger& ledger, MemoryPart part, uint64_t bytes,
                                const std::string& why) {
  std::string change;
  uint64_t free = 0;
  try {
    free = device.describe().free_bytes;
  } catch (...) {  // the lack is what is told
  }
  if (free >= bytes)
    change =
        fmt::format("\nFree on the device are {}: in pieces, or others have given it back since", human_bytes(free));
  else if (free > 0)
    change = fmt::format(
        "\nFree on the device are {}. Others have taken memory since the trainer was checked, or it was "
        "not: with train.memory_bytes = {} a change of the configuration that fits is named",
        human_bytes(free), free + total_bytes(ledger.now()));
  return fmt::format("{} needs {} bytes more: {}. The trainer has{}{}", memory_part_name(part), bytes, why,
                     memory_table(ledger.now()), change);
}

CountedMemory::CountedMemory(std::shared_ptr<DeviceContext> device, Ledger& ledger, MemoryPart part, uint64_t bytes)
    : part_(part) {
  if (bytes == 0) return;
  ledger.refuse(part, bytes);
  try {
    memory_ = Memory(device, bytes);
  } catch (const Error& e) {
    if (e.code() != GSEL_ERR_NOMEM) throw;
    throw Error(GSEL_ERR_NOMEM, text_of_lack(*device, ledger, part, bytes, e.message()));
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
