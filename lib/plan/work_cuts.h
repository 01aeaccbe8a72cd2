// plan/work_cuts.h: where gsel's strategy "pp" cuts a workload into stages of equal work. Does not know what a stage
// then costs.
#pragma once

#include <vector>

#include "plan/layout.h"
#include "plan/recipe.h"
#include "plan/workload.h"

namespace gsel::plan {

// Of one of a block's layers on a rank, in forward operations: as the strategy counts it.
double work_of(const Block& block, const Layout& layout);

// Work up to the end of each stage. weights: of the stages; what one has counts divided by its own. Empty: the workload
// has fewer pieces than there are stages.
std::vector<double> work_cuts(const Workload& workload, const Layout& layout, const Recipe& recipe,
                              std::vector<double> weights);

}  // namespace gsel::plan
