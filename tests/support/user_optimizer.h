// support/user_optimizer.h: shared by tests of optimizers of embedders.
#pragma once

#include "support/bucket_shard.h"

namespace gsel_test {

inline gsel_optimizer_options described(int32_t needs, int32_t n_states, gsel_optimizer_fn step,
                                        void* user_data = nullptr) {
  gsel_optimizer_options options = GSEL_OPTIMIZER_OPTIONS_INIT;
  options.needs = needs;
  options.n_states = n_states;
  options.step = step;
  options.user_data = user_data;
  return options;
}

inline gsel::Config config() {
  gsel::Config result;
  result.train.optimizer = "sgd";
  result.train.learning_rate = 0.5;
  result.train.weight_decay = 0.25;
  return result;
}

inline std::vector<ParamOf> params() {
  return {{"w", {6, 4}}, {"b", {4}, GSEL_PARAM_NO_DECAY}, {"e", {3, 7}, GSEL_PARAM_NO_CLIP, 0.5}, {"v", {8}}};
}

}  // namespace gsel_test
