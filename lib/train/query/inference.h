// train/query/inference.h: runs forward, between steps, up to one value. The ranks of the sharing and pipeline axes (a
// replica) compute it together on the same samples, each with its part, and then each has the whole value. The program
// and memory are kept for the next call of the same size.
#pragma once

#include <gsel/train.h>

#include <optional>

#include "train/execute/executor.h"
#include "train/query/whole_tensor.h"

namespace gsel {

class Inference {
 public:
  // model: as this rank of the sharing axis has it. described: whose layers are called. program: that of training. A
  // collective of the replica.
  Inference(Executor& executor, const Model& model, const Model& described, const Program& program, int32_t value,
            int64_t n_samples);

  bool fits(int32_t value, int64_t n_samples) const { return value == value_ && n_samples == n_samples_; }
  // Fills the inputs through `data`, runs the layers `value` depends on, copies it to dst. A collective of the replica.
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
  CountedMemory own_;   // where the arena of steps is too small
  CountedMemory room_;  // of whole_, and for the text of a failure
  std::optional<WholeTensor> whole_;
};

}  // namespace gsel
