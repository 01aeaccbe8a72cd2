// model/divide.h: the model of one rank of a tensor axis, made from the model as described: parameters and values have
// the sizes of what is there, and between layers that leave and find a value in different forms stands a layer of the
// library's own that converts it. All else, from gradients to memory, then follows as from any model. Ids of
// parameters, and of values that were described, stay; Layer::origin tells those of layers. Does not know programs
// and memory.
#pragma once

#include <vector>

#include "model/model.h"

namespace gsel {

// How a layer finds or leaves a value: GSEL_PLACE_*, and for a sharded one the dimension (0 is the batch).
struct PlaceInLayer {
  int32_t place = GSEL_PLACE_REPLICATED;
  int32_t dim = 0;
};

// What a tensor strategy decides.
struct Division {
  std::vector<double> weights;  // of the places: shares are in proportion
  std::vector<bool> split;      // by parameter: along its shard rule
  struct OfLayer {
    std::vector<PlaceInLayer> inputs, outputs;  // empty: all whole and alike on every rank
  };
  std::vector<OfLayer> layers;

  // Nothing is split.
  static Division none(const Model& model, std::vector<double> weights);
};

// model is finished, and so is the result. GSEL_ERR_MODEL and GSEL_ERR_CONFIG name the layer, value or parameter that
// cannot be divided so.
Model divide(const Model& model, const Division& division, int32_t place);

}  // namespace gsel
