// model/model.cc: see model.h. Items are checked when they are added, so that the error comes from the call at fault.
#include "model/model.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/options.h"
#include "base/text.h"
#include "base/types.h"

namespace gsel {
namespace {

// Names appear in program text and messages, so they are single printable words.
template <class Item>
std::string checked_name(gsel_str given_name, const char* kind, const std::vector<Item>& others) {
  const std::string name = text(given_name);
  if (name.empty()) fail(GSEL_ERR_MODEL, "a {} was added without a name", kind);
  for (unsigned char c : name)
    if (c <= ' ' || c == ',' || c == '=' || c == '#' || c == 0x7f)
      fail(GSEL_ERR_MODEL, "{} name {} has a blank, ',', '=' or '#'; use letters, digits and ._:/-", kind,
           in_quotes(name));
  for (const Item& other : others)
    if (other.name == name) fail(GSEL_ERR_MODEL, "{} name \"{}\" is used twice; names are unique", kind, name);
  return name;
}

std::vector<int64_t> checked_dims(const int64_t* dims, int32_t n, const char* kind, const std::string& name, int max) {
  if (n < 0 || n > max || (n > 0 && !dims))
    fail(GSEL_ERR_MODEL, "{} \"{}\" has {}; 0 to {} are possible", kind, name, with_noun(n, "dimension"), max);
  std::vector<int64_t> result(dims, dims + n);
  int64_t elems = 1;
  for (int64_t d : result) {
    if (d < 1)
      fail(GSEL_ERR_MODEL, "{} \"{}\" has a dimension of {}; each is at least 1", kind, name, with_noun(d, "element"));
    if (elems > std::numeric_limits<int64_t>::max() / 64 / d)
      fail(GSEL_ERR_MODEL, "{} \"{}\" has more elements than memory can address", kind, name);
    elems *= d;
  }
  return result;
}

int64_t product(const std::vector<int64_t>& dims) {
  int64_t n = 1;
  for (int64_t d : dims) n *= d;
  return n;
}

template <class Item>
std::vector<int32_t> checked_ids(const int32_t* ids, int32_t n, const char* what, const std::string& layer,
                                 const std::vector<Item>& items) {
  if (n < 0 || (n > 0 && !ids))
    fail(GSEL_ERR_MODEL, "layer \"{}\" has {} and no list of them", layer, with_noun(n, fmt::format("{} id", what)));
  std::vector<int32_t> result(ids, ids + n);
  for (int32_t id : result) {
    if (id < 0 || static_cast<size_t>(id) >= items.size())
      fail(GSEL_ERR_MODEL, "layer \"{}\" names {} id {}; ids 0 to {} exist", layer, what, id,
           static_cast<int64_t>(items.size()) - 1);
    if (std::count(result.begin(), result.end(), id) > 1)
      fail(GSEL_ERR_MODEL, "layer \"{}\" names {} \"{}\" twice", layer, what, items[id].name);
  }
  return result;
}

uint32_t checked_flags(uint32_t flags, uint32_t known, const char* kind, const std::string& name) {
  if (flags & ~known)
    fail(GSEL_ERR_MODEL, "{} \"{}\" has unknown flags {:#x}; known are {:#x}", kind, name, flags & ~known, known);
  return flags;
}

void check_phase(const gsel_phase& phase, const std::string& what) {
  if (phase.axis < 0 || phase.axis >= kAxes) fail(GSEL_ERR_MODEL, "{} has axis {}; see GSEL_AXIS_*", what, phase.axis);
  const bool ring_shift = phase.flags & GSEL_PHASE_RING_SHIFT;
  if (phase.flags & ~(GSEL_PHASE_RING_SHIFT | GSEL_PHASE_HOME) || (phase.flags && !ring_shift))
    fail(GSEL_ERR_MODEL, "{} has flags {:#x}; expected GSEL_PHASE_RING_SHIFT, perhaps with GSEL_PHASE_HOME", what,
         phase.flags);
  if (ring_shift && !shares_layers(phase.axis))
    fail(GSEL_ERR_MODEL, "{} is a ring shift over the {} axis; the tensor and context axes alone have them", what,
         axis_name(phase.axis));
  if (!ring_shift && phase.op != GSEL_SUM && phase.op != GSEL_MAX && phase.op != GSEL_MIN)
    fail(GSEL_ERR_MODEL, "{} has operation {}; GSEL_SUM, GSEL_MAX and GSEL_MIN are possible", what, phase.op);
  if (phase.dtype != GSEL_F32 && phase.dtype != GSEL_F64)
    fail(GSEL_ERR_MODEL, "{} has element type {}; f32 and f64 are possible", what, dtype_name(phase.dtype));
  constexpr int64_t kMost = int64_t{1} << 40;
  const bool sized = phase.elems >= 0 && phase.elems_per_sample >= 0 && phase.elems <= kMost &&
                     phase.elems_per_sample <= kMost && phase.elems + phase.elems_per_sample > 0;
  if (!sized)
    fail(GSEL_ERR_MODEL, "{} has {} and {} per sample", what, with_noun(phase.elems, "element"),
         phase.elems_per_sample);
  if (phase.axis == GSEL_AXIS_DATA && phase.elems_per_sample)
    fail(GSEL_ERR_MODEL, "{} is over the data axis, where ranks have different samples; elems_per_sample must be 0",
         what);
}

std::vector<gsel_phase> checked_phases(const gsel_phase* phases, int32_t n, const char* direction,
                                       const std::string& layer) {
  constexpr int32_t kMostPhases = 16;
  if (n < 0 || n > kMostPhases || (n > 0 && !phases))
    fail(GSEL_ERR_MODEL, "layer \"{}\" has {} {} phases; 0 to {} are possible", layer, n, direction, kMostPhases);
  std::vector<gsel_phase> result = read_structs(phases, n, "gsel_phase");
  for (int32_t i = 0; i < n; ++i) check_phase(result[i], fmt::format("layer \"{}\", {} phase {}", layer, direction, i));
  return result;
}

std::vector<int32_t> each_its_own(const std::vector<gsel_phase>& phases) {
  std::vector<int32_t> result(phases.size());
  std::iota(result.begin(), result.end(), 0);
  return result;
}

// The batch dimension cannot be split: the data axis divides batches.
void check_split(const Value& v) {
  const auto n = static_cast<int32_t>(v.dims.size());
  if (v.sequence_dim < 0 || v.sequence_dim > n)
    fail(GSEL_ERR_MODEL, "value \"{}\" has its positions along dimension {} of {}; expected 1 to {}, or 0 for none",
         v.name, v.sequence_dim, n + 1, n);
  if (v.declared != GSEL_PLACEMENT_SHARD) return;
  if (v.shard_dim == 0)
    fail(GSEL_ERR_MODEL, "value \"{}\" is sharded along its batch dimension; the data axis divides samples", v.name);
  const int64_t elems = v.dims[v.shard_dim - 1];
  if (v.shard_blocks < 1 || elems % v.shard_blocks || v.shard_granularity < 1 ||
      elems / v.shard_blocks % v.shard_granularity)
    fail(GSEL_ERR_MODEL,
         "value \"{}\" is sharded along dimension {} of {} in {} with a granularity of {}; they must "
         "divide it",
         v.name, v.shard_dim, with_noun(elems, "element"), with_noun(v.shard_blocks, "block"), v.shard_granularity);
}

}  // namespace

uint64_t Layer::unread(gsel_instr_kind kind) const {
  if (kind == GSEL_BACKWARD_INPUT) return backward_input_unread;
  if (kind == GSEL_BACKWARD_WEIGHT) return backward_weight_unread;
  return kind == GSEL_BACKWARD ? backward_input_unread & backward_weight_unread : 0;
}

bool Layer::reads_param(gsel_instr_kind kind, size_t i) const {
  if (kind == GSEL_BACKWARD_WEIGHT && !(flags & GSEL_LAYER_WEIGHT_READS_PARAMS)) return false;
  const bool backward_half = kind == GSEL_BACKWARD || kind == GSEL_BACKWARD_INPUT || kind == GSEL_BACKWARD_WEIGHT;
  return !(backward_half && i < 64 && (backward_unread_params >> i & 1));
}

void Model::refuse_if_finished() const {
  if (finished_)
    fail(GSEL_ERR_STATE, "the model is finished; add parameters, values and layers before gsel_model_finish");
}

int32_t Model::add_param(const gsel_param_options& options) {
  refuse_if_finished();
  Param p;
  p.name = checked_name(options.name, "parameter", params_);
  p.dims = checked_dims(options.dims, options.n_dims, "parameter", p.name, GSEL_MAX_DIMS);
  p.n_elems = product(p.dims);
  p.dtype = options.dtype ? options.dtype : GSEL_F32;
  if (p.dtype != GSEL_F32 && p.dtype != GSEL_BF16 && p.dtype != GSEL_F16)
    fail(GSEL_ERR_UNSUPPORTED, "parameter \"{}\" is {}; parameters are f32, bf16 or f16", p.name, dtype_name(p.dtype));
  p.lr_factor = options.lr_factor == 0 ? 1 : options.lr_factor;
  if (!(p.lr_factor > 0 && p.lr_factor <= std::numeric_limits<float>::max()))
    fail(GSEL_ERR_MODEL, "parameter \"{}\" has lr_factor {}; it is a finite number above 0, or 0 for 1", p.name,
         p.lr_factor);
  p.flags = checked_flags(options.flags,
                          GSEL_PARAM_NO_DECAY | GSEL_PARAM_FROZEN | GSEL_PARAM_NO_CLIP | GSEL_PARAM_REPLICATE_IF_FEW,
                          "parameter", p.name);
  p.init = options.init;
  if (p.init < GSEL_INIT_ZEROS || p.init > GSEL_INIT_CALLBACK)
    fail(GSEL_ERR_MODEL, "parameter \"{}\" has initialiser {}; GSEL_INIT_ZEROS, _ONES, _NORMAL and _CALLBACK exist",
         p.name, p.init);
  if (p.init == GSEL_INIT_CALLBACK && !options.init_fn)
    fail(GSEL_ERR_MODEL, "parameter \"{}\" asks for GSEL_INIT_CALLBACK and gives no init_fn", p.name);
  p.init_scale = options.init_scale;
  p.init_fn = options.init_fn;
  p.init_user_data = options.init_user_data;
  p.shard_kind = options.shard;
  p.shard_dim = options.shard_dim;
  p.shard_blocks = options.shard_blocks ? options.shard_blocks : 1;
  p.shard_granularity = options.shard_granularity ? options.shard_granularity : 1;
  p.whole_dims = p.dims;
  if (p.shard_kind != GSEL_SHARD_NONE && p.shard_kind != GSEL_SHARD_DIM)
    fail(GSEL_ERR_MODEL, "parameter \"{}\" has shard rule {}; GSEL_SHARD_NONE and GSEL_SHARD_DIM exist", p.name,
         p.shard_kind);
  if (p.shard_kind == GSEL_SHARD_DIM && (p.shard_dim < 0 || p.shard_dim >= options.n_dims || p.shard_blocks < 1 ||
                                         p.dims[p.shard_dim] % p.shard_blocks != 0))
    fail(GSEL_ERR_MODEL, "parameter \"{}\" is sharded along dimension {} in {}; it has {} and blocks must divide",
         p.name, p.shard_dim, with_noun(p.shard_blocks, "block"), with_noun(options.n_dims, "dimension"));
  if (p.shard_kind == GSEL_SHARD_DIM &&
      (p.shard_granularity < 1 || p.dims[p.shard_dim] / p.shard_blocks % p.shard_granularity != 0))
    fail(GSEL_ERR_MODEL, "parameter \"{}\" is sharded with a granularity of {}, and a block of dimension {} has {}",
         p.name, with_noun(p.shard_granularity, "element"), p.shard_dim, p.dims[p.shard_dim] / p.shard_blocks);
  params_.push_back(std::move(p));
  return static_cast<int32_t>(params_.size()) - 1;
}

int32_t Model::add_value(const gsel_value_options& options) {
  refuse_if_finished();
  Value v;
  v.name = checked_name(options.name, "value", values_);
  v.dims = checked_dims(options.dims, options.n_dims, "value", v.name, GSEL_MAX_DIMS - 1);
  v.sample_elems = product(v.dims);
  v.dtype = options.dtype ? options.dtype : GSEL_F32;
  if (!dtype_bytes(v.dtype)) fail(GSEL_ERR_MODEL, "value \"{}\" has unknown element type {}", v.name, v.dtype);
  v.flags = checked_flags(
      options.flags, GSEL_VALUE_INPUT | GSEL_VALUE_NOT_DIFFERENTIABLE | GSEL_VALUE_SCALAR | GSEL_VALUE_REPLICATE_IF_FEW,
      "value", v.name);
  v.declared = options.placement;
  v.shard_dim = options.shard_dim;
  if (v.declared < GSEL_PLACEMENT_REPLICATE || v.declared > GSEL_PLACEMENT_PARTIAL ||
      (v.declared == GSEL_PLACEMENT_SHARD && (v.shard_dim < 0 || v.shard_dim > options.n_dims)))
    fail(GSEL_ERR_MODEL, "value \"{}\" has placement {} along dimension {} of {}; see GSEL_PLACEMENT_*", v.name,
         v.declared, v.shard_dim, options.n_dims + 1);
  v.shard_granularity = options.shard_granularity ? options.shard_granularity : 1;
  v.shard_blocks = options.shard_blocks ? options.shard_blocks : 1;
  v.sequence_dim = options.sequence_dim;
  v.whole_dims = v.dims;
  check_split(v);
  if (v.is_input()) v.flags |= GSEL_VALUE_NOT_DIFFERENTIABLE;
  if (v.is_scalar() && (v.is_input() || options.n_dims != 0))
    fail(GSEL_ERR_MODEL, "value \"{}\" is a scalar and also an input or shaped; a scalar is one number per micro-batch",
         v.name);
  values_.push_back(std::move(v));
  return static_cast<int32_t>(values_.size()) - 1;
}

int32_t Model::add_layer(const gsel_layer_options& options) {
  refuse_if_finished();
  Layer layer;
  layer.name = checked_name(options.name, "layer", layers_);
  layer.inputs = checked_ids(options.inputs, options.n_inputs, "value", layer.name, values_);
  layer.outputs = checked_ids(options.outputs, options.n_outputs, "value", layer.name, values_);
  layer.params = checked_ids(options.params, options.n_params, "parameter", layer.name, params_);
  layer.flags = checked_flags(options.flags,
                              GSEL_LAYER_LOSS | GSEL_LAYER_NO_CUT_AFTER | GSEL_LAYER_RECOMPUTABLE |
                                  GSEL_LAYER_OWN_PARAMS | GSEL_LAYER_POSITIONWISE | GSEL_LAYER_SAVES_WHOLE |
                                  GSEL_LAYER_ALWAYS_ACCUMULATES | GSEL_LAYER_WEIGHT_READS_PARAMS,
                              "layer", layer.name);
  layer.saved_bytes_per_sample = options.saved_bytes_per_sample;
  layer.flop_per_sample = options.flop_per_sample;
  layer.forward = options.forward;
  layer.backward_input = options.backward_input;
  layer.backward_weight = options.backward_weight;
  layer.backward = options.backward;
  layer.user_data = options.user_data;
  layer.backward_input_unread = options.backward_input_unread;
  layer.backward_weight_unread = options.backward_weight_unread;
  layer.backward_unread_params = options.backward_unread_params;
  layer.forward_phases = checked_phases(options.forward_phases, options.n_forward_phases, "forward", layer.name);
  layer.backward_phases = checked_phases(options.backward_phases, options.n_backward_phases, "backward", layer.name);
  layer.forward_buffers = layer.forward_phases;
  layer.backward_buffers = layer.backward_phases;
  layer.forward_buffer_of = each_its_own(layer.forward_phases);
  layer.backward_buffer_of = each_its_own(layer.backward_phases);
  check_layer(layer);

  const auto id = static_cast<int32_t>(layers_.size());
  layer.origin = id;
  for (int32_t v : layer.inputs) values_[v].readers.push_back(id);
  for (int32_t v : layer.outputs) values_[v].producer = id;
  if (layer.is_loss()) loss_layer_ = id;
  layers_.push_back(std::move(layer));
  return id;
}

void Model::check_layer(const Layer& layer) const {
  const bool has_backward = layer.backward || layer.backward_input || layer.backward_weight;
  if (!layer.forward && has_backward) fail(GSEL_ERR_MODEL, "layer \"{}\" has no forward callback", layer.name);
  for (int32_t v : layer.inputs)
    if (values_[v].producer < 0 && !values_[v].is_input())
      fail(GSEL_ERR_MODEL,
           "layer \"{}\" reads value \"{}\" before any layer writes it; list order is execution order, so a cycle is "
           "not possible",
           layer.name, values_[v].name);
  for (int32_t v : layer.outputs) {
    if (values_[v].is_input())
      fail(GSEL_ERR_MODEL, "layer \"{}\" writes value \"{}\", which is an input", layer.name, values_[v].name);
    if (values_[v].producer >= 0)
      fail(GSEL_ERR_MODEL, "layer \"{}\" writes value \"{}\", which layer \"{}\" already writes", layer.name,
           values_[v].name, layers_[values_[v].producer].name);
    if (values_[v].is_scalar() && !layer.is_loss())
      fail(GSEL_ERR_MODEL, "layer \"{}\" writes scalar \"{}\"; only the loss layer writes scalars", layer.name,
           values_[v].name);
  }
  if (layer.is_loss()) check_loss(layer);
  if (!layer.backward_phases.empty() && !layer.backward && !layer.backward_input && !layer.pull_only())
    fail(GSEL_ERR_MODEL, "layer \"{}\" has backward phases and neither backward_input nor backward", layer.name);
}

void Model::check_loss(const Layer& layer) const {
  if (loss_layer_ >= 0)
    fail(GSEL_ERR_MODEL, "layer \"{}\" is a second loss layer after \"{}\"; a model has one", layer.name,
         layers_[loss_layer_].name);
  const bool two_f64_scalars =
      layer.outputs.size() == 2 && std::all_of(layer.outputs.begin(), layer.outputs.end(), [&](int32_t v) {
        return values_[v].is_scalar() && values_[v].dtype == GSEL_F64;
      });
  if (!two_f64_scalars)
    fail(GSEL_ERR_MODEL, "loss layer \"{}\" must write two f64 scalars: the sum of losses and the sum of weights",
         layer.name);
}

void Model::finish(Loss loss) {
  if (loss_layer_ < 0 && loss == Loss::required)
    fail(GSEL_ERR_MODEL, "the model of {} has no loss layer; flag one with GSEL_LAYER_LOSS",
         with_noun(static_cast<int64_t>(layers_.size()), "layer"));
  if (finished_) return;
  for (const Value& v : values_)
    if (v.producer < 0 && !v.is_input())
      fail(GSEL_ERR_MODEL, "value \"{}\" is written by no layer and is no input", v.name);
  std::vector<bool> used(params_.size());
  for (const Layer& layer : layers_)
    for (const int32_t p : layer.params) used[p] = true;
  for (size_t p = 0; p < params_.size(); ++p)
    if (!used[p]) fail(GSEL_ERR_MODEL, "parameter \"{}\" is used by no layer", params_[p].name);
  derive_gradients();
  check_backward_callbacks();
  finished_ = true;
}

void Model::derive_gradients() {
  // Forward pass: finds values that depend on a trainable parameter.
  std::vector<bool> depends(values_.size()), leads(values_.size()), active(layers_.size());
  auto trains = [&](const Layer& layer) {
    return layer.owns_params() ||
           std::any_of(layer.params.begin(), layer.params.end(), [&](int32_t p) { return params_[p].trainable(); });
  };
  for (const Layer& layer : layers_) {
    const bool any =
        trains(layer) || std::any_of(layer.inputs.begin(), layer.inputs.end(), [&](int32_t v) { return depends[v]; });
    for (int32_t v : layer.outputs)
      depends[v] = any && is_floating(values_[v].dtype) && !(values_[v].flags & GSEL_VALUE_NOT_DIFFERENTIABLE);
  }
  // Backward pass: finds layers and values that lead to the loss.
  for (int32_t l = static_cast<int32_t>(layers_.size()) - 1; l >= 0; --l) {
    const Layer& layer = layers_[l];
    active[l] = l == loss_layer_ ||
                std::any_of(layer.outputs.begin(), layer.outputs.end(), [&](int32_t v) { return leads[v]; });
    if (active[l])
      for (int32_t v : layer.inputs) leads[v] = depends[v];
  }
  for (size_t v = 0; v < values_.size(); ++v) values_[v].needs_gradient = depends[v] && leads[v];
  for (size_t l = 0; l < layers_.size(); ++l) {
    Layer& layer = layers_[l];
    layer.needs_backward_weight = active[l] && trains(layer);
    layer.needs_backward_input = active[l] && std::any_of(layer.inputs.begin(), layer.inputs.end(),
                                                          [&](int32_t v) { return values_[v].needs_gradient; });
  }
}

void Model::check_backward_callbacks() const {
  for (const Layer& layer : layers_) {
    if (layer.backward_in_one() || layer.redistributes) continue;
    if (layer.needs_backward_input && !layer.backward_input)
      fail(GSEL_ERR_MODEL, "layer \"{}\" has inputs that need a gradient and neither backward_input nor backward",
           layer.name);
    if (layer.needs_backward_weight && !layer.backward_weight)
      fail(GSEL_ERR_MODEL, "layer \"{}\" has trainable parameters and neither backward_weight nor backward",
           layer.name);
  }
}

int64_t Model::element_count() const {
  int64_t n = 0;
  for (const Param& p : params_) n += p.n_elems;
  return n;
}

}  // namespace gsel
