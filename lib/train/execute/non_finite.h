// train/execute/non_finite.h: the origin of the first non-finite number of a step, in the order of micro-batches, of
// forward and of backward, on any rank. Does not know how such numbers are found.
#pragma once

#include <cstdint>

#include "model/model.h"

namespace gsel {

// Layer and value are ids of the described model. For a non-finite value: value is its id, layer made it (-1: an
// input), param is -1; values come before the gradients that follow from them. For a gradient: value is -1, and the
// backward of layer made the gradient of param, or of the layer's inputs if param is -1. Unknown: no rank made it, but
// a sum over ranks did.
struct NonFiniteOrigin {
  int32_t rank = -1, layer = -1, param = -1, microbatch = -1, value = -1;

  bool is_known() const { return rank >= 0; }
  // As a number: the minimum over ranks is the first origin; infinite if unknown.
  double order(const Model& model, int32_t n_ranks) const;
  static NonFiniteOrigin of_order(double order, const Model& model, int32_t n_ranks);
};

}  // namespace gsel
