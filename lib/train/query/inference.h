// train/query/inference.h: runs forward up to one value, between steps. The ranks of a replica (sharing and pipeline
// axes) compute it together on the same samples; then each has the whole value. The program and memory are kept for
// further calls of the same size.
#pragma once

#include <gsel/train.h>

#include <optional>

#include "train/execute/executor.h"
#include "train/query/whole_tensor.h"

namespace gsel {

class Inference {
 public:
  // model: as this rank of the sharing axis has it. described: the model whose callbacks are called. program: of
  // training. A collective of the replica.
  Inference(Executor& executor, const Model& model, const Model& described, const Program& program, int32_t value,
            int64_t n_samples);

  bool fits(int32_t value, int64_t n_samples) const { return value == value_ && n_samples == n_samples_; }
  // Fills inputs from `data`, runs the needed layers, copies the value to dst. A collective of the replica.
  void run(const DataSource& data, uint64_t rng_key, void* dst);

 private:
  void prepare();
  void sum_up(void* local) const;
  void agree_on_failure(const std::optional<Error>& failure);
  std::string broadcast_text(const std::string& text, int32_t rank);
  bool is_alone() const;

  Executor& executor_;
  const Model& model_;
  const Model& described_;
  const Program& training_;
  const int32_t value_;
  const int64_t n_samples_;
  Program program_;
  std::unique_ptr<execute::InferenceRun> run_;
  CountedMemory own_;   // used if the arena of steps is too small
  CountedMemory room_;  // for whole_, and for the text of a failure
  std::optional<WholeTensor> whole_;
};

}  // namespace gsel
