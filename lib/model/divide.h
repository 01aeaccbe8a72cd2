// model/divide.h: makes the model that one rank of the sharing axis runs from the model as described. Parameters and
// values have the sizes of this rank's parts. If a layer writes a value with one placement and another layer reads it
// with a different one, a layer of the library between them redistributes the value. Everything else, from gradients to
// memory, then follows as for any model. Parameters and described values keep their ids; Layer::origin has the original
// ids of layers. Does not know programs and memory.
#pragma once

#include <vector>

#include "base/axis.h"
#include "model/model.h"

namespace gsel {

// How a layer finds or leaves a value: GSEL_PLACEMENT_*, and for a sharded one the dimension (0 is the batch).
struct PlacementInLayer {
  int32_t kind = GSEL_PLACEMENT_REPLICATE;
  int32_t dim = 0;
};

// What the strategy of the sharing axis decides.
struct Division {
  gsel_axis axis = GSEL_AXIS_TENSOR;  // along which ranks share layers
  std::vector<double> weights;        // of its ranks: shares are in proportion
  std::vector<bool> split;            // by parameter: along its shard rule
  struct OfLayer {
    std::vector<PlacementInLayer> inputs, outputs;  // empty: all whole and alike on every rank
  };
  std::vector<OfLayer> layers;

  // Nothing is split.
  static Division none(const Model& model, std::vector<double> weights, gsel_axis axis = GSEL_AXIS_TENSOR);
};

// model is finished, and so is the result. GSEL_ERR_MODEL and GSEL_ERR_CONFIG name the layer, value or parameter that
// cannot be divided so.
Model divide(const Model& model, const Division& division, int32_t coordinate);

}  // namespace gsel
