// plan/split.h: the blocks of a workload on the stages of a pipeline. Programs of other people have whole layers on
// each stage; gsel's strategy cuts behind any operation, so that stages have equal work. Does not know devices and
// times.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/layout.h"
#include "plan/recipe.h"
#include "plan/workload.h"

namespace gsel::plan {

// Stages that have the same blocks, one behind the other.
struct StageRun {
  int32_t first = 0, count = 1;  // stages
  Costs costs;                   // of one of them
  double layers = 0;             // on one of them
  double kept_outputs = 0;       // elements that recomputation keeps
};

struct Split {
  int32_t stages = 1;
  double boundary = 0;  // elements of what goes from stage to stage, of one sample
  std::vector<StageRun> runs;
};

// Whole layers of each stage. weights: speeds of the stages; empty: equal. They are dealt as evenly as the weights
// allow; the embedding is on the first stage, the head on the last. GSEL_ERR_ARG: fewer layers than stages.
std::vector<int64_t> layers_of_stages(const Workload& workload, int32_t stages,
                                      const std::vector<double>& weights = {});
Split split(const Workload& workload, int32_t stages, const std::vector<double>& weights = {});
// The given number of layers on each stage.
Split split_as(const Workload& workload, const std::vector<int64_t>& layers);

// As the programs of the recipe have it. Unequal devices: shares has the stages' parts. Layers that opted out are those
// of the workload.
Split split_for(const Workload& workload, const Layout& layout, const Shares& shares, const Recipe& recipe);

}  // namespace gsel::plan
