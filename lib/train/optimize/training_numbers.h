// train/optimize/training_numbers.h: the numbers that a trainer resumes from, beside its tensors.
#pragma once

#include <cstdint>
#include <optional>

namespace gsel {

constexpr int64_t kMostSteps = 999'999'999'999, kMostFirstSample = int64_t{1} << 60;

// The same on every rank.
struct TrainingNumbers {
  int64_t step = 0, updates = 0;
  int64_t first_sample = 0;  // of the step
  int64_t seed = 1;          // of the random numbers of each step
  double loss_scale = 1;
  int64_t good_steps = 0, overflows_left = 0;
  std::optional<double> learning_rate;  // as set by the embedder
  int64_t revision = 0;                 // changes when tensors are written between steps; not in checkpoints
  bool operator==(const TrainingNumbers&) const = default;
};

}  // namespace gsel
