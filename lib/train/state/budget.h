// train/state/budget.h: refuses, before anything is allocated, a model that does not fit train.memory_bytes. The
// message says what each part would need, and the smallest change of the configuration that fits.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "train/compile/pass.h"
#include "train/state/layout.h"

namespace gsel {

// The rank that needs most of device memory, and what it needs.
struct RankNeed {
  int32_t rank = 0;
  MemoryPartBytes parts{};
  uint64_t total() const { return total_bytes(parts); }
};
// That of the ranks of another configuration; nothing where one of them cannot have its program.
using NeedOf = std::function<std::optional<RankNeed>(const Config&)>;
// What the strategy of the data axis suggests to need less.
using MemoryAdvice = std::function<std::vector<Suggestion>()>;

// GSEL_ERR_NOMEM when `need`, the greatest of all ranks, exceeds the budget. `program` is one of the job's. Given alike
// on all ranks, advice and need_of may be collectives: all of them ask for the same configurations in the same order.
void check_budget(const Config& config, const Program& program, const RankNeed& need, const MemoryAdvice& advice,
                  const NeedOf& need_of);

// "310.5 MiB"; below 1 KiB "12 bytes".
std::string human_bytes(uint64_t bytes);
// One line for each part that is not empty, then the total of device memory: name, human units, bytes, aligned.
std::string memory_table(const MemoryPartBytes& parts);

}  // namespace gsel
