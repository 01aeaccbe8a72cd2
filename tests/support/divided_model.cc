// See divided_model.h.
#include "support/divided_model.h"

namespace divided {

namespace {

gsel_status nothing(const gsel_call*, void*) {
  return GSEL_OK;
}
gsel_str text(const std::string& s) {
  return {s.data(), s.size()};
}

template <class Item>
std::vector<int32_t> ids(const std::vector<std::string>& names, const std::vector<Item>& items) {
  std::vector<int32_t> result;
  for (const std::string& name : names)
    result.push_back(static_cast<int32_t>(std::ranges::find(items, name, &Item::name) - items.begin()));
  return result;
}

}  // namespace

Description& Description::param(const ParamSpec& p) {
  gsel_param_options options = GSEL_PARAM_OPTIONS_INIT;
  options.name = text(p.name);
  options.dims = p.dims.data();
  options.n_dims = static_cast<int32_t>(p.dims.size());
  options.flags = p.flags;
  options.shard = p.shard_dim < 0 ? GSEL_SHARD_NONE : GSEL_SHARD_DIM;
  options.shard_dim = std::max(p.shard_dim, 0);
  options.shard_blocks = p.blocks;
  options.shard_granularity = p.unit;
  model.add_param(options);
  return *this;
}
Description& Description::value(const ValueSpec& v) {
  gsel_value_options options = GSEL_VALUE_OPTIONS_INIT;
  options.name = text(v.name);
  options.dims = v.dims.data();
  options.n_dims = static_cast<int32_t>(v.dims.size());
  options.flags = v.flags;
  options.dtype = v.flags & GSEL_VALUE_SCALAR ? GSEL_F64 : GSEL_F32;
  options.placement = v.placement;
  options.shard_dim = v.shard_dim;
  options.shard_granularity = v.unit;
  options.shard_blocks = v.blocks;
  options.sequence_dim = v.sequence_dim;
  model.add_value(options);
  return *this;
}
Description& Description::layer(const LayerSpec& l) {
  const std::vector<int32_t> inputs = ids(l.inputs, model.values()), outputs = ids(l.outputs, model.values()),
                             params = ids(l.params, model.params());
  gsel_layer_options options = GSEL_LAYER_OPTIONS_INIT;
  options.name = text(l.name);
  options.inputs = inputs.data();
  options.n_inputs = static_cast<int32_t>(inputs.size());
  options.outputs = outputs.data();
  options.n_outputs = static_cast<int32_t>(outputs.size());
  options.params = params.data();
  options.n_params = static_cast<int32_t>(params.size());
  options.flags = l.flags;
  options.saved_bytes_per_sample = l.saved;
  options.flop_per_sample = 1200;
  options.forward = options.backward = nothing;
  options.forward_phases = l.forward_phases.data();
  options.n_forward_phases = static_cast<int32_t>(l.forward_phases.size());
  options.backward_phases = l.backward_phases.data();
  options.n_backward_phases = static_cast<int32_t>(l.backward_phases.size());
  model.add_layer(options);
  return *this;
}
Description& Description::loss(const std::vector<std::string>& read, uint32_t flags) {
  value({"loss.sum", {}, 0, 0, 1, 1, 0, GSEL_VALUE_SCALAR})
      .value({"loss.weight", {}, 0, 0, 1, 1, 0, GSEL_VALUE_SCALAR});
  layer({"loss", read, {"loss.sum", "loss.weight"}, {}, flags | GSEL_LAYER_LOSS});
  model.finish();
  return *this;
}

gsel::Division as_declared(const gsel::Model& model, std::vector<double> weights, bool positions) {
  gsel::Division division = gsel::Division::none(model, std::move(weights));
  for (size_t p = 0; p < division.split.size(); ++p) division.split[p] = model.params()[p].shard_kind == GSEL_SHARD_DIM;
  for (size_t l = 0; l < model.layers().size(); ++l) {
    const gsel::Layer& layer = model.layers()[l];
    auto& placements = division.layers[l];
    bool declared = std::ranges::any_of(layer.params, [&](int32_t p) { return division.split[p]; });
    for (const auto* ids : {&layer.inputs, &layer.outputs})
      for (int32_t v : *ids) declared |= model.values()[v].declared == GSEL_PLACEMENT_SHARD;
    for (int32_t v : layer.outputs) declared |= model.values()[v].declared == GSEL_PLACEMENT_PARTIAL;
    const bool by_position = !declared && positions && layer.flags & GSEL_LAYER_POSITIONWISE;
    if (!by_position && (!declared || layer.is_loss())) continue;
    auto placement_of = [&](int32_t v, bool reads) -> gsel::PlacementInLayer {
      const gsel::Value& value = model.values()[v];
      if (by_position && value.is_scalar()) return {GSEL_PLACEMENT_PARTIAL, 0};
      if (by_position) return {GSEL_PLACEMENT_SHARD, value.sequence_dim};
      if (value.declared == GSEL_PLACEMENT_SHARD) return {GSEL_PLACEMENT_SHARD, value.shard_dim};
      return {value.declared == GSEL_PLACEMENT_PARTIAL && !reads ? GSEL_PLACEMENT_PARTIAL : GSEL_PLACEMENT_REPLICATE,
              0};
    };
    for (int32_t v : layer.inputs) placements.inputs.push_back(placement_of(v, true));
    for (int32_t v : layer.outputs) placements.outputs.push_back(placement_of(v, false));
  }
  return division;
}

}  // namespace divided
