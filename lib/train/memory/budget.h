// train/memory/budget.h: refuses a model that does not fit train.memory_bytes before anything is allocated: says what
// would be needed, part by part, and the smallest change of the configuration that fits.
#pragma once

#include <span>
#include <string>

#include "train/compile/pass.h"
#include "train/memory/layout.h"

namespace gsel {

// GSEL_ERR_NOMEM when the forecast of any rank's program exceeds the budget. `ranks` are all there are, so that every
// rank decides alike.
void check_budget(const Model& model, const Config& config, const Mesh& mesh, const Optimizer& optimizer,
                  const CompiledRanks& ranks);

// "310.5 MiB"; below 1 KiB "12 bytes".
std::string human_bytes(uint64_t bytes);
// One line for each part that is not empty, then the total of device memory: name, human units, bytes, aligned.
std::string memory_table(const PartBytes& parts);

}  // namespace gsel
