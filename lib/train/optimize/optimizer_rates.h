// train/optimize/optimizer_rates.h: the factors (learning rate and the like) of one parameter in one step. Used by the
// files of the optimizer alone.
#pragma once

#include "train/optimize/optimizer.h"

namespace gsel {

struct Optimizer::Rates {
  double gradient = 1;  // from the sum to the clipped mean
  double learning = 0;  // with schedule and lr_factor
  double decay = 0;
  bool operator==(const Rates&) const = default;
};

}  // namespace gsel
