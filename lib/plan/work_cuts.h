// plan/work_cuts.h: where gsel's strategy "pp" cuts a workload into stages of equal work. Does not know the cost of a
// stage.
#pragma once

#include <vector>

#include "plan/layout.h"
#include "plan/recipe.h"
#include "plan/workload.h"

namespace gsel::plan {

// Work of one layer of a block on a rank, in forward operations, as the strategy counts it.
double work_of(const Block& block, const Layout& layout);

// Cumulative work at the end of each stage. weights: one per stage, by which its work is divided. Empty result: the
// workload has fewer pieces than stages.
std::vector<double> work_cuts(const Workload& workload, const Layout& layout, const Recipe& recipe,
                              std::vector<double> weights);

}  // namespace gsel::plan
