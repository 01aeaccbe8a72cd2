// See made_model.h.
#include "support/made_model.h"

#include "support/transfers.h"
#include "train/compile/exchange_programs.h"

namespace made {

static gsel_status nothing(const gsel_call*, void*) {
  return GSEL_OK;
}

gsel_str text(const std::string& s) {
  return {s.data(), s.size()};
}

int32_t Maker::param(int64_t n, uint32_t flags, gsel_dtype dtype) {
  const std::string name = "p" + std::to_string(model_->params().size());
  gsel_param_options options = GSEL_PARAM_OPTIONS_INIT;
  options.name = text(name);
  options.dims = &n;
  options.n_dims = 1;
  options.dtype = dtype;
  options.flags = flags;
  options.init = GSEL_INIT_NORMAL;
  options.init_scale = 0.5;
  return model_->add_param(options);
}

int32_t Maker::value(int64_t n, uint32_t flags) {
  const std::string name = "v" + std::to_string(model_->values().size());
  gsel_value_options options = GSEL_VALUE_OPTIONS_INIT;
  options.name = text(name);
  options.dims = &n;
  options.n_dims = 1;
  options.flags = flags;
  return model_->add_value(options);
}

int32_t Maker::scalar() {
  const std::string name = "v" + std::to_string(model_->values().size());
  gsel_value_options options = GSEL_VALUE_OPTIONS_INIT;
  options.name = text(name);
  options.dtype = GSEL_F64;
  options.flags = GSEL_VALUE_SCALAR;
  return model_->add_value(options);
}

int32_t Maker::layer(const LayerSpec& spec) {
  const std::string name = "l" + std::to_string(model_->layers().size());
  gsel_layer_options options = GSEL_LAYER_OPTIONS_INIT;
  options.name = text(name);
  options.inputs = spec.inputs.data();
  options.n_inputs = static_cast<int32_t>(spec.inputs.size());
  options.outputs = spec.outputs.data();
  options.n_outputs = static_cast<int32_t>(spec.outputs.size());
  options.params = spec.params.data();
  options.n_params = static_cast<int32_t>(spec.params.size());
  options.flags = spec.flags;
  options.saved_bytes_per_sample = spec.saved;
  options.forward = nothing;
  (spec.fused ? options.backward : options.backward_input) = nothing;
  if (!spec.fused) options.backward_weight = nothing;
  options.backward_input_unread = spec.input_unread;
  options.backward_weight_unread = spec.weight_unread;
  options.backward_unread_params = spec.unread_params;
  options.forward_phases = spec.forward_phases.data();
  options.n_forward_phases = static_cast<int32_t>(spec.forward_phases.size());
  options.backward_phases = spec.backward_phases.data();
  options.n_backward_phases = static_cast<int32_t>(spec.backward_phases.size());
  return model_->add_layer(options);
}

std::unique_ptr<gsel::Model> Maker::finish(const std::vector<int32_t>& read) {
  LayerSpec loss;
  loss.inputs = read;
  loss.outputs = {scalar(), scalar()};
  loss.flags = GSEL_LAYER_LOSS;
  layer(loss);
  model_->finish();
  return std::move(model_);
}

std::unique_ptr<gsel::Model> changed_chain(const std::vector<int64_t>& param_sizes, int64_t width,
                                           const std::function<void(size_t, LayerSpec&)>& change) {
  Maker make;
  int32_t v = make.value(width, GSEL_VALUE_INPUT);
  for (size_t l = 0; l < param_sizes.size(); ++l) {
    LayerSpec layer;
    layer.inputs = {v};
    layer.params = {make.param(param_sizes[l])};
    layer.outputs = {v = make.value(width)};
    change(l, layer);
    make.layer(layer);
  }
  return make.finish({v});
}

std::unique_ptr<gsel::Model> chain(const std::vector<int64_t>& param_sizes, int64_t width, uint32_t layer_flags) {
  return changed_chain(param_sizes, width, [&](size_t, LayerSpec& layer) { layer.flags = layer_flags; });
}

gsel::Config config(const std::string& text) {
  return gsel::parse_config(text, "test.toml");
}

gsel::Mesh data_mesh(int32_t ranks) {
  gsel::Mesh mesh;
  mesh.size[GSEL_AXIS_DATA] = ranks;
  return mesh;
}

std::vector<gsel::Program> programs(const gsel::Model& model, const gsel::Config& config, const gsel::Mesh& mesh) {
  const gsel::Compiler compiler(model, config, mesh);
  std::vector<gsel::Program> result;
  for (int32_t rank = 0; rank < mesh.world_size(); ++rank) result.push_back(compiler.compile(rank).program);
  gsel::place_post_validations(result);
  gsel::test::set_transfers(result);
  return result;
}
std::vector<gsel::Program> programs(const gsel::Model& model, const gsel::Config& config, int32_t ranks) {
  return programs(model, config, data_mesh(ranks));
}

}  // namespace made
