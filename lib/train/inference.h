// train/inference.h: forward alone, on one rank, up to one value. Keeps its memory for the next call of the same size.
// Where parameters are not whole on every rank, as in a pipeline, all ranks go through the layers together, and a rank
// that failed goes on to give the others its part.
#pragma once

#include <gsel/train.h>

#include <optional>
#include <vector>

#include "train/views.h"
#include "train/whole_params.h"

namespace gsel {

class Inference {
 public:
  Inference(Executor& executor, const Model& model, const Program& program, int32_t value, int64_t n_samples);

  bool fits(int32_t value, int64_t n_samples) const { return value == value_ && n_samples == n_samples_; }
  // Fills the inputs through `data`, runs the layers `value` depends on, copies it to dst.
  void run(gsel_data_fn data, void* user_data, uint64_t rng_key, int64_t step, void* dst);

 private:
  void fill_inputs(gsel_data_fn data, void* user_data);
  void forward(int32_t layer, uint64_t rng_key, int64_t step);
  gsel_tensor lend_param(int32_t p);
  bool is_cast(int32_t p) const;
  uint64_t scratch_bytes(const Layer& layer) const;
  char* take_scratch(uint64_t bytes);
  gsel_tensor view(int32_t v) const { return value_tensor(model_.values()[v], n_samples_, memory_.at(offsets_[v])); }

  Executor& executor_;
  const Model& model_;
  const Program& program_;
  WholeParams whole_;
  int32_t value_;
  int64_t n_samples_;
  std::vector<bool> needed_values_;
  std::vector<int32_t> layers_;  // in order
  std::vector<uint64_t> offsets_;
  uint64_t scratch_begin_ = 0, scratch_taken_ = 0;
  CountedMemory memory_;
  std::vector<int64_t> sample_ids_;
};

}  // namespace gsel
