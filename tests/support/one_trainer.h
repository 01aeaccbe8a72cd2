// support/one_trainer.h: a trainer of one rank on the exact model, for tests of checkpoints that need no layouts.
#pragma once

#include <string>
#include <vector>

#include "support/exact_model.h"

class OneTrainer {
 public:
  explicit OneTrainer(const char* optimizer = "lion");
  ~OneTrainer();
  OneTrainer(const OneTrainer&) = delete;

  void step();
  std::vector<float> params();
  // The step that comes next.
  int64_t save(const std::string& folder, int32_t keep = 0);
  gsel_trainer* handle() { return trainer_; }

 private:
  exact_model exact_{};
  gsel_config* config_ = nullptr;
  gsel_model* model_ = nullptr;
  gsel_trainer* trainer_ = nullptr;
};

// Its parameters after n steps.
std::vector<float> params_after(int64_t n);
