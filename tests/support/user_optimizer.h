// support/user_optimizer.h: what tests of embedders' optimizers share.
#pragma once

#include "support/stretch.h"

namespace gsel_test {

inline gsel_optimizer_options described(int32_t needs, int32_t n_states, gsel_optimizer_fn step,
                                        void* user_data = nullptr) {
  gsel_optimizer_options desc = GSEL_OPTIMIZER_OPTIONS_INIT;
  desc.needs = needs;
  desc.n_states = n_states;
  desc.step = step;
  desc.user_data = user_data;
  return desc;
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
