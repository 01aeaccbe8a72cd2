// model/divide.cc: see divide.h. Processes layers in order. A value is redistributed right before the layer that needs
// another placement; partial sums are reduced right after the layer that writes them.
#include "model/divide.h"

#include <algorithm>
#include <map>
#include <unordered_set>

#include "base/text.h"
#include "base/types.h"

namespace gsel {
namespace {

const char* suffix_of(Placement placement) {
  static const char* const suffixes[] = {"@replicate", "@copy", "@shard", "@partial"};
  return suffixes[static_cast<size_t>(placement)];
}

}  // namespace

class Divider {
 public:
  Divider(const Model& model, const Division& division, int32_t coordinate)
      : from_(model), division_(division), coordinate_(coordinate), to_(model), left_(model.values().size()) {
    for (const Value& v : model.values()) taken_.insert(v.name);
    for (const Layer& layer : model.layers()) taken_.insert(layer.name);
  }

  Model run() {
    split_params();
    to_.layers_.clear();
    for (Value& v : to_.values_) v.producer = -1, v.readers.clear();
    for (size_t l = 0; l < from_.layers().size(); ++l) add(from_.layers()[l], division_.layers[l]);
    mark_partial_gradients();
    to_.loss_layer_ = -1;
    for (size_t l = 0; l < to_.layers_.size(); ++l)
      if (to_.layers_[l].is_loss()) to_.loss_layer_ = static_cast<int32_t>(l);
    to_.finished_ = false;
    to_.finish(Model::Loss::optional);
    return std::move(to_);
  }

 private:
  // The placement of a value between layers.
  struct Spec {
    Placement placement = Placement::replicate;
    Shard shard;
    auto key() const { return std::tuple(placement, shard.dim); }
  };

  size_t ranks() const { return division_.weights.size(); }

  // ---- shards ----

  Shard shard_of(int64_t elems, int32_t dim, int32_t blocks, int32_t granularity) const {
    const std::vector<int64_t> bounds = shard_bounds(elems / blocks / granularity, division_.weights);
    return {dim, blocks, bounds[coordinate_] * granularity, bounds[coordinate_ + 1] * granularity, elems / blocks};
  }

  bool has_few(int64_t elems, int32_t blocks, int32_t granularity) const {
    return elems / blocks / granularity < static_cast<int64_t>(ranks());
  }

  [[noreturn]] void refuse_few(const std::string& what, int64_t elems, int32_t dim, int32_t blocks,
                               int32_t granularity) const {
    const int64_t n = elems / blocks / granularity;
    fail(GSEL_ERR_CONFIG,
         "{} cannot be split over {} of the {} axis: its dimension {} of {} can be cut in {} at most{}, with a "
         "granularity of {}; set mesh.{} = {} or less",
         what, with_noun(ranks(), "rank"), axis_name(division_.axis), dim, with_noun(elems, "element"), n,
         blocks > 1 ? fmt::format(" in each of {}", with_noun(blocks, "block")) : "", granularity,
         axis_name(division_.axis), n);
  }

  void split_params() {
    for (size_t i = 0; i < to_.params_.size(); ++i) {
      Param& p = to_.params_[i];
      if (!division_.split[i]) continue;
      const int64_t elems = p.dims[p.shard_dim];
      if (has_few(elems, p.shard_blocks, p.shard_granularity)) {
        if (p.flags & GSEL_PARAM_REPLICATE_IF_FEW) continue;
        refuse_few(fmt::format("parameter \"{}\"", p.name), elems, p.shard_dim, p.shard_blocks, p.shard_granularity);
      }
      p.shard = shard_of(elems, p.shard_dim, p.shard_blocks, p.shard_granularity);
      p.dims = local_dims(p.dims, p.shard);
      p.n_elems = 1;
      for (int64_t d : p.dims) p.n_elems *= d;
    }
  }

  Spec spec_of(const Value& v, const PlacementInLayer& as) const {
    if (as.kind == GSEL_PLACEMENT_PARTIAL) return {Placement::partial, {}};
    if (as.kind == GSEL_PLACEMENT_REPLICATE) return {};
    const bool as_described = as.dim == v.shard_dim && v.declared == GSEL_PLACEMENT_SHARD;
    const int32_t granularity = as_described ? v.shard_granularity : 1, blocks = as_described ? v.shard_blocks : 1;
    if (as.dim < 1 || as.dim > static_cast<int32_t>(v.whole_dims.size()))
      fail(GSEL_ERR_MODEL, "value \"{}\" is to be split along dimension {} of {}", v.name, as.dim,
           v.whole_dims.size() + 1);
    const int64_t elems = v.whole_dims[as.dim - 1];
    if (has_few(elems, blocks, granularity)) {
      if (as_described && v.flags & GSEL_VALUE_REPLICATE_IF_FEW) return {};
      refuse_few(fmt::format("value \"{}\"", v.name), elems, as.dim, blocks, granularity);
    }
    return {Placement::shard, shard_of(elems, as.dim, blocks, granularity)};
  }

  // A value's dims do not include the batch dimension, which shard.dim counts.
  void set_placement(Value& v, const Spec& spec) const {
    v.placement = spec.placement;
    v.shard = spec.shard;
    v.dims = v.whole_dims;
    if (!spec.shard.is_whole()) v.dims[spec.shard.dim - 1] = spec.shard.size() * spec.shard.blocks;
    v.sample_elems = 1;
    for (int64_t d : v.dims) v.sample_elems *= d;
  }

  // ---- layers ----

  void add(const Layer& described, const Division::OfLayer& placements) {
    Layer layer = described;
    std::vector<Spec> inputs(layer.inputs.size()), outputs(layer.outputs.size());
    for (size_t i = 0; i < inputs.size() && !placements.inputs.empty(); ++i)
      inputs[i] = spec_of(from_.values()[layer.inputs[i]], placements.inputs[i]);
    for (size_t i = 0; i < outputs.size() && !placements.outputs.empty(); ++i)
      outputs[i] = spec_of(from_.values()[layer.outputs[i]], placements.outputs[i]);
    settle_outputs(layer, inputs, outputs);
    describe_division(layer, inputs, outputs);
    if (layer.divided) check_division(layer, outputs);
    for (size_t i = 0; i < inputs.size(); ++i) layer.inputs[i] = wanted(layer, layer.inputs[i], inputs[i]);
    for (size_t i = 0; i < outputs.size(); ++i) {
      left_[layer.outputs[i]] = outputs[i];
      set_placement(to_.values_[layer.outputs[i]], outputs[i]);
      if (outputs[i].placement == Placement::partial && !from_.values()[layer.outputs[i]].is_scalar())
        layer.flags |= GSEL_LAYER_NO_CUT_AFTER;
    }
    append(layer);
    for (int32_t v : described.outputs) sum_up(v);
  }

  bool has_shards(const Layer& layer, const std::vector<Spec>& inputs) const {
    return std::ranges::any_of(inputs, [](const Spec& spec) { return spec.placement == Placement::shard; }) ||
           std::ranges::any_of(layer.params, [&](int32_t p) { return !to_.params_[p].shard.is_whole(); });
  }

  // A layer whose inputs and parameters are all whole writes whole values; a declared shard is an error.
  void settle_outputs(const Layer& layer, const std::vector<Spec>& inputs, std::vector<Spec>& outputs) const {
    if (has_shards(layer, inputs)) return;
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (outputs[i].placement == Placement::shard)
        fail(GSEL_ERR_MODEL,
             "layer \"{}\" is to write a shard of value \"{}\", and has all of its inputs and parameters; give one of "
             "its "
             "parameters a shard rule, or flag the value with GSEL_VALUE_REPLICATE_IF_FEW",
             layer.name, from_.values()[layer.outputs[i]].name);
      outputs[i] = {};
    }
  }

  void describe_division(Layer& layer, const std::vector<Spec>& inputs, const std::vector<Spec>& outputs) const {
    layer.divided = has_shards(layer, inputs);
    bool positions = false,
         others = std::ranges::any_of(layer.params, [&](int32_t p) { return !to_.params_[p].shard.is_whole(); });
    Shard first;
    auto look = [&](int32_t v, const Spec& spec) {
      if (spec.placement != Placement::shard) return;
      (spec.shard.dim == from_.values()[v].sequence_dim ? positions : others) = true;
      if (first.is_whole()) first = spec.shard;
    };
    for (size_t i = 0; i < outputs.size(); ++i) look(layer.outputs[i], outputs[i]);
    for (size_t i = 0; i < inputs.size(); ++i) look(layer.inputs[i], inputs[i]);
    for (int32_t p : layer.params)
      if (first.is_whole()) first = to_.params_[p].shard;
    layer.some_positions = positions && !others;
    set_phases(layer, layer.forward_phases, layer.forward_buffers, layer.forward_buffer_of);
    set_phases(layer, layer.backward_phases, layer.backward_buffers, layer.backward_buffer_of);
    if (first.is_whole()) return;
    const double share = static_cast<double>(first.size()) / static_cast<double>(first.whole);
    layer.flop_per_sample *= share;
    if (layer.flags & GSEL_LAYER_SAVES_WHOLE && !layer.some_positions) return;
    const auto saved = static_cast<__int128>(layer.saved_bytes_per_sample) * first.size();
    layer.saved_bytes_per_sample = static_cast<uint64_t>((saved + first.whole - 1) / first.whole);
  }

  // A ring shift over the sharing axis becomes as many phases as needed, or none.
  void set_phases(const Layer& layer, std::vector<gsel_phase>& phases, std::vector<gsel_phase>& buffers,
                  std::vector<int32_t>& buffer_of) const {
    std::vector<gsel_phase> result;
    buffer_of.clear();
    for (size_t i = 0; i < phases.size(); ++i) {
      gsel_phase phase = phases[i];
      size_t times = 1;
      if (phase.flags & GSEL_PHASE_RING_SHIFT)
        times = (layer.divided ? ranks() - 1 : 0) + (phase.flags & GSEL_PHASE_HOME ? 1 : 0);
      const bool ring_shift = phase.flags & GSEL_PHASE_RING_SHIFT;
      if (shares_layers(phase.axis))
        phase.axis = !layer.divided || (layer.some_positions && !ring_shift) ? -1 : division_.axis;
      if (ring_shift && layer.some_positions) phase.elems_per_sample = of_most_positions(layer, phase.elems_per_sample);
      buffers[i] = phase;
      result.insert(result.end(), times, phase);
      buffer_of.insert(buffer_of.end(), times, static_cast<int32_t>(i));
    }
    phases = std::move(result);
  }

  // Ring-shift buffers have room for the largest shard of positions.
  int64_t of_most_positions(const Layer& layer, int64_t elems) const {
    for (int32_t v : layer.outputs) {
      const Value& value = from_.values()[v];
      if (value.sequence_dim == 0 || value.is_scalar()) continue;
      const int64_t whole = value.whole_dims[value.sequence_dim - 1];
      const std::vector<int64_t> bounds = shard_bounds(whole, division_.weights);
      int64_t most = 0;
      for (size_t i = 0; i + 1 < bounds.size(); ++i) most = std::max(most, bounds[i + 1] - bounds[i]);
      return static_cast<int64_t>((static_cast<__int128>(elems) * most + whole - 1) / whole);
    }
    return elems;
  }

  static bool reduces(const std::vector<gsel_phase>& phases) {
    return std::ranges::any_of(phases, [](const gsel_phase& phase) { return shares_layers(phase.axis); });
  }

  void check_division(const Layer& layer, const std::vector<Spec>& outputs) const {
    for (size_t i = 0; i < outputs.size(); ++i) {
      const Value& v = from_.values()[layer.outputs[i]];
      if (outputs[i].placement == Placement::replicate && !reduces(layer.forward_phases))
        fail(GSEL_ERR_MODEL,
             "layer \"{}\" has a shard of an input or parameter and writes value \"{}\" whole; declare the value "
             "GSEL_PLACEMENT_SHARD or GSEL_PLACEMENT_PARTIAL, or reduce in phases over the {} axis",
             layer.name, v.name, axis_name(division_.axis));
      if (outputs[i].placement != Placement::partial || v.is_scalar()) continue;
      for (int32_t p : layer.params)
        if (to_.params_[p].shard.is_whole())
          fail(GSEL_ERR_MODEL,
               "layer \"{}\" writes partial sums of value \"{}\" and has all of parameter \"{}\": it would be added on "
               "each of {}; use it in a layer that reads the sum",
               layer.name, v.name, to_.params_[p].name, with_noun(ranks(), "rank"));
    }
  }

  // ---- redistributions ----

  // The value with the placement that this layer wants, redistributed before the layer if needed.
  int32_t wanted(const Layer& layer, int32_t v, Spec spec) {
    const bool has_gradient = from_.values()[v].needs_gradient && layer.needs_backward_input;
    if (spec.placement == Placement::replicate && layer.divided && has_gradient && !reduces(layer.backward_phases))
      spec.placement = Placement::copy;
    return redistributed(v, spec);
  }

  int32_t redistributed(int32_t v, const Spec& spec) {
    if (left_[v].key() == spec.key()) return v;
    const auto known = redistributions_.find({v, spec.key()});
    if (known != redistributions_.end()) return known->second;
    // Free if the partial sums have been reduced already.
    if (left_[v].placement == Placement::partial && spec.placement == Placement::copy)
      if (const auto sum = redistributions_.find({v, Spec{}.key()}); sum != redistributions_.end())
        return redistributions_[{v, spec.key()}] = insert_redistribution(v, sum->second, spec);
    return redistributions_[{v, spec.key()}] = insert_redistribution(v, v, spec);
  }

  // Inserts the reductions of partial sums that later readers want; replicate and shard need one sum each.
  void sum_up(int32_t v) {
    if (left_[v].placement != Placement::partial || from_.values()[v].is_scalar()) return;
    std::vector<Spec> wants;
    for (int32_t reader : from_.values()[v].readers) {
      const Layer& layer = from_.layers()[reader];
      const auto& placements = division_.layers[reader].inputs;
      const size_t i = std::ranges::find(layer.inputs, v) - layer.inputs.begin();
      wants.push_back(placements.empty() ? Spec{} : spec_of(from_.values()[v], placements[i]));
    }
    for (const Spec& spec : wants)
      if (spec.placement == Placement::shard) redistributed(v, spec);
    if (std::ranges::any_of(wants, [](const Spec& spec) { return spec.placement == Placement::replicate; }))
      redistributed(v, Spec{});
  }

  int32_t insert_redistribution(int32_t described, int32_t v, const Spec& spec) {
    Value value = to_.values_[v];
    value.name = unused_name(from_.values()[described].name + suffix_of(spec.placement));
    value.flags &= ~GSEL_VALUE_INPUT;
    value.producer = -1;
    value.readers.clear();
    set_placement(value, spec);
    Layer layer;
    layer.name = value.name;
    layer.inputs = {v};
    layer.outputs = {static_cast<int32_t>(to_.values_.size())};
    layer.redistributes = layer.divided = true;
    layer.backward_input_unread = layer.backward_weight_unread =
        GSEL_UNREAD_INPUT(0) | GSEL_UNREAD_OUTPUT(0) | GSEL_UNREAD_SAVED;
    if (to_.values_[v].placement != Placement::partial) layer.flags |= GSEL_LAYER_NO_CUT_AFTER;
    if (is_recomputable(from_.values()[described])) layer.flags |= GSEL_LAYER_RECOMPUTABLE;
    to_.values_.push_back(std::move(value));
    append(std::move(layer));
    return static_cast<int32_t>(to_.values_.size()) - 1;
  }

  bool is_recomputable(const Value& v) const {
    auto recomputable = [&](int32_t l) { return from_.layers()[l].recomputable(); };
    return v.producer >= 0 && recomputable(v.producer) && std::ranges::all_of(v.readers, recomputable);
  }

  std::string unused_name(std::string name) {
    while (!taken_.insert(name).second) name += '+';
    return name;
  }

  void append(Layer layer) {
    const auto id = static_cast<int32_t>(to_.layers_.size());
    for (int32_t v : layer.inputs) to_.values_[v].readers.push_back(id);
    for (int32_t v : layer.outputs) to_.values_[v].producer = id;
    to_.layers_.push_back(std::move(layer));
  }

  // ---- gradients of parameters ----

  // A whole parameter has a partial gradient if divided layers use it, and a whole gradient if other layers do.
  void mark_partial_gradients() {
    struct Users {
      const Layer *divided = nullptr, *whole = nullptr;
    };
    std::vector<Users> users(to_.params_.size());
    for (const Layer& layer : to_.layers_)
      for (const int32_t p : layer.params) (layer.divided ? users[p].divided : users[p].whole) = &layer;
    for (size_t p = 0; p < users.size(); ++p) {
      Param& param = to_.params_[p];
      const auto [divided, whole] = users[p];
      if (!param.shard.is_whole() || !divided || !param.trainable()) continue;
      if (whole)
        fail(GSEL_ERR_MODEL,
             "parameter \"{}\" is used by layer \"{}\", of which each rank of the {} axis has a shard, and by layer "
             "\"{}\", which all run alike; their gradients cannot be summed as one",
             param.name, divided->name, axis_name(division_.axis), whole->name);
      param.partial_gradient = true;
    }
  }

  const Model& from_;
  const Division& division_;
  const int32_t coordinate_;
  Model to_;
  std::vector<Spec> left_;                 // by described value: placement after its layer
  std::unordered_set<std::string> taken_;  // names of values and layers
  std::map<std::pair<int32_t, std::tuple<Placement, int32_t>>, int32_t> redistributions_;
};

Division Division::none(const Model& model, std::vector<double> weights, gsel_axis axis) {
  Division division;
  division.axis = axis;
  division.weights = std::move(weights);
  division.split.resize(model.params().size());
  division.layers.resize(model.layers().size());
  return division;
}

Model divide(const Model& model, const Division& division, int32_t coordinate) {
  return Divider(model, division, coordinate).run();
}

}  // namespace gsel
