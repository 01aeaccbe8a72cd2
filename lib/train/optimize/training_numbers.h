// train/optimize/training_numbers.h: what a trainer goes on from besides tensors.
#pragma once

#include <cstdint>
#include <optional>

namespace gsel {

// The same on every rank.
struct TrainingNumbers {
  int64_t step = 0, updates = 0;
  double loss_scale = 1;
  int64_t good_steps = 0, overflows_left = 0;
  std::optional<double> learning_rate;  // as set by the embedder
  bool operator==(const TrainingNumbers&) const = default;
};

}  // namespace gsel
