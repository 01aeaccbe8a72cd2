// train/inference.h: forward alone, on one rank, up to one value. Keeps its memory for the next call of the same size.
#pragma once

#include <gsel/train.h>

#include <vector>

#include "train/storage.h"

namespace gsel {

class Inference {
 public:
  Inference(std::shared_ptr<Backend> backend, const Model& model, const ParamStorage& params, int32_t value,
            int64_t n_samples);

  bool fits(int32_t value, int64_t n_samples) const { return value == value_ && n_samples == n_samples_; }
  // Fills the inputs through `data`, runs the layers `value` depends on, copies it to dst.
  void run(gsel_data_fn data, void* user_data, uint64_t rng_key, void* dst);

 private:
  void fill_inputs(gsel_data_fn data, void* user_data);
  void forward(int32_t layer, uint64_t rng_key);
  gsel_tensor view(int32_t v) const { return value_tensor(model_.values()[v], n_samples_, memory_.at(offsets_[v])); }

  std::shared_ptr<Backend> backend_;
  const Model& model_;
  const ParamStorage& params_;
  int32_t value_;
  int64_t n_samples_;
  std::vector<bool> needed_values_;
  std::vector<int32_t> layers_;  // in order
  std::vector<uint64_t> offsets_;
  uint64_t saved_offset_ = 0;
  Memory memory_;
  std::vector<int64_t> sample_ids_;
};

}  // namespace gsel
