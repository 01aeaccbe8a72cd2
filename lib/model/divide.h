// model/divide.h: makes the model that one rank of the sharing axis runs from the described model. Parameters and
// values have the sizes of this rank's shards. If a layer writes a value with one placement and another layer reads it
// with a different one, a library layer between them redistributes the value. The rest, from gradients to memory, works
// as for any model. Parameters and described values keep their ids; Layer::origin has the original ids of layers. Does
// not know programs and memory.
#pragma once

#include <vector>

#include "model/model.h"

namespace gsel {

// The placement with which a layer reads or writes a value: GSEL_PLACEMENT_*; dim of a sharded one (0 is the batch).
struct PlacementInLayer {
  int32_t kind = GSEL_PLACEMENT_REPLICATE;
  int32_t dim = 0;
};

// The decisions of the sharing axis's strategy.
struct Division {
  gsel_axis axis = GSEL_AXIS_TENSOR;  // the sharing axis
  std::vector<double> weights;        // by rank: sizes of shards are in proportion
  std::vector<bool> split;            // by parameter: whether it is split by its shard rule
  struct OfLayer {
    std::vector<PlacementInLayer> inputs, outputs;  // empty: all replicated
  };
  std::vector<OfLayer> layers;

  // Splits nothing.
  static Division none(const Model& model, std::vector<double> weights, gsel_axis axis = GSEL_AXIS_TENSOR);
};

// model must be finished; the result is finished too. GSEL_ERR_MODEL and GSEL_ERR_CONFIG name the layer, value or
// parameter that cannot be divided this way.
Model divide(const Model& model, const Division& division, int32_t coordinate);

}  // namespace gsel
