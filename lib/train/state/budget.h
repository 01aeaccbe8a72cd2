// train/state/budget.h: refuses a model that does not fit train.memory_bytes, or what is free on a rank's device,
// before anything is allocated. The message lists the need of each part, and the smallest change of the configuration
// that fits.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "train/compile/pass.h"
#include "train/state/layout.h"

namespace gsel {

// The rank that needs most device memory, and its need.
struct RankNeed {
  int32_t rank = 0;
  MemoryPartBytes parts{};
  std::vector<int32_t> sharing{};  // other ranks on its device, if `parts` is what all of them need there
  uint64_t total() const { return total_bytes(parts); }
};
// The greatest need under another configuration; empty if a rank has no program for it.
using NeedOf = std::function<std::optional<RankNeed>(const Config&)>;
// Suggestions of the data axis's strategy to reduce memory.
using MemoryAdvice = std::function<std::vector<Suggestion>()>;

// What a rank's trainer may take.
struct Budget {
  uint64_t bytes = 0;           // 0: no bound
  bool is_free_memory = false;  // of the rank's accelerator; else train.memory_bytes
};

// GSEL_ERR_NOMEM when `need`, the greatest of all ranks, exceeds the budget. `program`: any of the job's. With equal
// arguments on all ranks, advice and need_of may be collectives: all ranks call them in the same order.
void check_budget(const Config& config, const Budget& budget, const Program& program, const RankNeed& need,
                  const MemoryAdvice& advice, const NeedOf& need_of);

}  // namespace gsel
