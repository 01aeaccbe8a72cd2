// support/divided_model.h: models described in a line per item, with how items lie on a tensor axis, and the models
// of its ranks. Callbacks exist and do nothing.
#ifndef GSEL_TESTS_DIVIDED_MODEL_H
#define GSEL_TESTS_DIVIDED_MODEL_H

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "model/divide.h"
#include "program/redistribution.h"

namespace divided {

struct ParamSpec {
  std::string name;
  std::vector<int64_t> dims;
  int32_t shard_dim = -1, blocks = 1, unit = 1;
  uint32_t flags = 0;
};
struct ValueSpec {
  std::string name;
  std::vector<int64_t> dims;
  int32_t placement = GSEL_PLACEMENT_REPLICATE, shard_dim = 0, unit = 1, blocks = 1, sequence_dim = 0;
  uint32_t flags = 0;
};
struct LayerSpec {
  std::string name;
  std::vector<std::string> inputs, outputs, params = {};
  uint32_t flags = 0;
  uint64_t saved = 0;
  std::vector<gsel_phase> forward_phases = {}, backward_phases = {};
};

constexpr gsel_phase kSum{sizeof(gsel_phase), 0, GSEL_AXIS_TENSOR, GSEL_SUM, GSEL_F32, 0, 4, 0};

class Description {
 public:
  Description& param(const ParamSpec& p);
  Description& value(const ValueSpec& v);
  Description& layer(const LayerSpec& l);
  // The loss over these values, which is described as whole unless its scalars are partial; finishes the model.
  Description& loss(const std::vector<std::string>& read, uint32_t flags = 0);

  gsel::Model model;
};

template <class Item>
const Item& named(const std::vector<Item>& items, const std::string& name) {
  const auto found = std::ranges::find(items, name, &Item::name);
  if (found == items.end()) {
    std::string all;
    for (const Item& item : items) all += " " + item.name;
    throw std::runtime_error("nothing is called " + name + ", there are" + all);
  }
  return *found;
}

// What the strategy of plugins/strategy/tp says: all shard rules, all placements as they are declared; and with
// positions, what computes each position by itself takes a part of them. But the loss of these models has no
// phases, so it reads all of its values unless it goes by position.
gsel::Division as_declared(const gsel::Model& model, std::vector<double> weights, bool positions = false);

}  // namespace divided

#endif
