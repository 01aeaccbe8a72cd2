// support/pipeline_lowering.h: programs of a pipeline, lowered by hand for tests of the executor: one forward and one
// backward order per pipeline rank, the messages of the live values, sums over data axis and ties at the end. No plugin
// is used.
#ifndef GSEL_TESTS_PIPELINE_LOWERING_H
#define GSEL_TESTS_PIPELINE_LOWERING_H

#include <vector>

#include "support/made_model.h"

namespace made {

using namespace gsel;

struct Cut {
  std::vector<int32_t> first_layers;   // of stages 1, 2, ...
  std::vector<int32_t> rank_of_stage;  // one for each stage
};

struct StageAction {
  char kind;  // F, B, or the halves I and W
  int32_t stage, microbatch;
};

Mesh pipeline_mesh(int32_t data, int32_t pipeline);

// One forward, one backward: rank r of p starts p - r micro-batches before the first comes back.
std::vector<StageAction> one_forward_one_backward(int32_t pipeline_rank, int32_t pipeline, int32_t m);

// All forwards, then all input halves, then all weight halves; any number of stages on a rank.
std::vector<StageAction> all_forward_all_backward(const Cut& cut, int32_t pipeline_rank, int32_t m);

// One rank's program; with `recompute`, layers that may run forward again before their backward do.
Program lower_pipeline(const Model& model, const Config& config, const Mesh& mesh, int32_t rank, const Cut& cut,
                       const std::vector<StageAction>& actions, bool recompute = false);

}  // namespace made

#endif
