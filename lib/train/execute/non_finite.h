// train/execute/non_finite.h: where the first number of a step that is not finite came from, in the order of
// micro-batches, of forward and of backward, on any rank. Does not know how such numbers are found.
#pragma once

#include <cstdint>
#include <limits>

#include "model/model.h"

namespace gsel {

// Where it came from; layer and value are of the description. A value that is not finite comes before the gradients
// that follow from it: then value is its id, layer the one whose forward made it, or -1 for an input, and param is -1.
// Else value is -1, and the backward of layer made a gradient: of param, or, where that is -1, of its inputs. Nowhere:
// no rank made it, a sum over ranks did.
struct NonFiniteOrigin {
  int32_t rank = -1, layer = -1, param = -1, microbatch = -1, value = -1;

  bool is_known() const { return rank >= 0; }
  // As one number that is the smaller the earlier, so that ranks can agree on the first; infinite: nowhere.
  double order(const Model& model, int32_t n_ranks) const;
  static NonFiniteOrigin of_order(double order, const Model& model, int32_t n_ranks);
};

}  // namespace gsel
