// plan/split.h: divides the blocks of a workload among the stages of a pipeline. Other programs put whole layers on
// each stage; gsel's strategy cuts after any operation, so that stages have equal work. Does not know devices or times.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/layout.h"
#include "plan/recipe.h"
#include "plan/workload.h"

namespace gsel::plan {

// Consecutive stages with the same blocks.
struct StageRun {
  int32_t first = 0, count = 1;  // stage numbers
  Costs costs;                   // per stage
  double layers = 0;             // per stage
  double kept_outputs = 0;       // elements that recomputation keeps
};

struct Split {
  int32_t stages = 1;
  double boundary = 0;  // elements that one stage sends to the next, per sample
  std::vector<StageRun> runs;
};

// The number of whole layers of each stage. weights: speeds of the stages; empty: equal. Layers are distributed as
// evenly as the weights allow; the embedding is on the first stage, the head on the last. GSEL_ERR_ARG: fewer layers
// than stages.
std::vector<int64_t> layers_of_stages(const Workload& workload, int32_t stages,
                                      const std::vector<double>& weights = {});
Split split(const Workload& workload, int32_t stages, const std::vector<double>& weights = {});
// Splits with the given number of layers for each stage.
Split split_as(const Workload& workload, const std::vector<int64_t>& layers);

// Splits as programs of the recipe do. shares.stage_layers has the number of layers of each stage. Opted-out layers are
// those of the workload.
Split split_for(const Workload& workload, const Layout& layout, const Shares& shares, const Recipe& recipe);

// Work of one layer of a block on a rank, in forward operations, as the strategy counts it.
double work_of(const Block& block, const Layout& layout);

// The cuts of gsel's own pipeline strategy: cumulative work at the end of each stage. weights: one per stage, by which
// its work is divided. Empty result: the workload has fewer sublayers than stages.
std::vector<double> work_cuts(const Workload& workload, const Layout& layout, const Recipe& recipe,
                              std::vector<double> weights);

}  // namespace gsel::plan
