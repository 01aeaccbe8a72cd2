// support/one_trainer.h: a trainer of one rank on the exact model, for tests of checkpoints that need no layouts.
#pragma once

#include <gsel/state.h>

#include <string>
#include <vector>

#include "support/exact_model.h"

class OneTrainer {
 public:
  explicit OneTrainer(const char* optimizer = "lion");
  // With these keys of [train], over a model that fails in no step.
  static OneTrainer with(const std::string& train) { return OneTrainer(train, 0); }
  ~OneTrainer();
  OneTrainer(const OneTrainer&) = delete;

  void step();
  std::vector<float> params();
  // The step that comes next.
  int64_t save(const std::string& folder, int32_t keep = 0);
  gsel_trainer* handle() { return trainer_; }
  // Numbers of the samples of all steps, in the order of the requests for inputs.
  const std::vector<int64_t>& samples() const { return samples_; }
  gsel_training_numbers numbers();

 private:
  OneTrainer(const std::string& train, int);
  static gsel_status data(const gsel_data_request* request, void* self);

  std::vector<int64_t> samples_;
  exact_model exact_{};
  gsel_config* config_ = nullptr;
  gsel_model* model_ = nullptr;
  gsel_trainer* trainer_ = nullptr;
};

// Its parameters after n steps.
std::vector<float> params_after(int64_t n);
