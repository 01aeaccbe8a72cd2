// train/compile/pass_tensor.cc: the functions about the sharing axis that a strategy plugin calls during its pass:
// which parameters are split, and with which placements layers read and write values.
#include <algorithm>

#include "train/compile/pass_calls.h"

namespace gsel {

double axis_weight(const gsel_pass* pass, gsel_axis axis, int32_t coordinate) {
  if (axis < 0 || axis >= kAxes) return 0;
  double weight = 0;
  attempt([&] {
    const std::vector<double> weights = pass->compiler.weights_of(axis);
    if (within(weights, coordinate)) weight = weights[coordinate];
  });
  return weight;
}

gsel_status split_param(gsel_pass* pass, int32_t param) {
  if (!pass->division) return GSEL_ERR_STATE;
  const auto& params = pass->model.params();
  if (!within(params, param) || params[param].shard_kind != GSEL_SHARD_DIM) return GSEL_ERR_ARG;
  pass->division->split[param] = true;
  return GSEL_OK;
}

gsel_status set_layer_placements(gsel_pass* pass, int32_t id, const gsel_placement* inputs,
                                 const gsel_placement* outputs) {
  if (!pass->division) return GSEL_ERR_STATE;
  const auto& layers = pass->model.layers();
  if (!within(layers, id) || !inputs || !outputs) return GSEL_ERR_ARG;
  Division::OfLayer placements;
  for (size_t i = 0; i < layers[id].inputs.size(); ++i) placements.inputs.push_back({inputs[i].kind, inputs[i].dim});
  for (size_t i = 0; i < layers[id].outputs.size(); ++i)
    placements.outputs.push_back({outputs[i].kind, outputs[i].dim});
  auto known = [](const PlacementInLayer& p) {
    return p.kind >= GSEL_PLACEMENT_REPLICATE && p.kind <= GSEL_PLACEMENT_PARTIAL;
  };
  auto readable = [&](const PlacementInLayer& p) { return known(p) && p.kind != GSEL_PLACEMENT_PARTIAL; };
  if (!std::ranges::all_of(placements.inputs, readable) || !std::ranges::all_of(placements.outputs, known))
    return GSEL_ERR_ARG;
  pass->division->layers[id] = std::move(placements);
  return GSEL_OK;
}

}  // namespace gsel
