// train/check/shards_check.cc: the ways to divide the model over ranks of the sharing axis, and the check of a layer's
// shards on all ranks, run in lockstep, against the whole layer. The model is divided as the plugins tp and cp do
// (plugins/strategy/common), but each positionwise layer by itself. Buffers are divided and put together by the
// placements of values and gradients in the divided model (model/divide.h).
#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "model/divide.h"
#include "train/check/layer_check.h"
#include "train/check/model_check.h"

namespace gsel::check {

// ---- divisions of the model ----------------------------------------------------------------------------------------

namespace {

PlacementInLayer as_declared(const Value& v, bool reads) {
  if (v.declared == GSEL_PLACEMENT_SHARD) return {GSEL_PLACEMENT_SHARD, v.shard_dim};
  return {v.declared == GSEL_PLACEMENT_PARTIAL && !reads ? GSEL_PLACEMENT_PARTIAL : GSEL_PLACEMENT_REPLICATE, 0};
}

PlacementInLayer by_position(const Value& v, bool) {
  if (v.is_scalar()) return {GSEL_PLACEMENT_PARTIAL, 0};
  return {GSEL_PLACEMENT_SHARD, v.sequence_dim};
}

bool is_declared(const Model& model, const Layer& layer) {
  auto is_split = [&](int32_t p) { return model.params()[p].shard_kind == GSEL_SHARD_DIM; };
  auto is_placed = [&](int32_t v) { return model.values()[v].declared != GSEL_PLACEMENT_REPLICATE; };
  auto is_sharded = [&](int32_t v) { return model.values()[v].declared == GSEL_PLACEMENT_SHARD; };
  return std::ranges::any_of(layer.params, is_split) || std::ranges::any_of(layer.outputs, is_placed) ||
         std::ranges::any_of(layer.inputs, is_sharded);
}

bool has_positions(const Model& model, const Layer& layer) {
  if (!(layer.flags & GSEL_LAYER_POSITIONWISE)) return false;
  bool found = false, all = true;
  for (const auto* values : {&layer.inputs, &layer.outputs})
    for (int32_t id : *values) {
      const Value& v = model.values()[id];
      found |= v.sequence_dim > 0;
      all &= v.is_scalar() || v.sequence_dim > 0;
    }
  return found && all;
}

using Rule = PlacementInLayer (*)(const Value&, bool reads);
using Applies = bool (*)(const Model&, const Layer&);

Division division_by(const Model& model, int32_t ranks, Applies applies, Rule rule) {
  Division division = Division::none(model, std::vector<double>(static_cast<size_t>(ranks), 1.0));
  for (size_t l = 0; l < model.layers().size(); ++l) {
    const Layer& layer = model.layers()[l];
    if (!applies(model, layer)) continue;
    for (int32_t v : layer.inputs) division.layers[l].inputs.push_back(rule(model.values()[v], true));
    for (int32_t v : layer.outputs) division.layers[l].outputs.push_back(rule(model.values()[v], false));
  }
  return division;
}

void add(const Model& model, int32_t ranks, const char* how, const Division& division, Findings& findings,
         std::vector<Divided>& to) {
  Divided divided{how, {}};
  try {
    for (int32_t rank = 0; rank < ranks; ++rank) divided.models.push_back(divide(model, division, rank));
  } catch (const Error& e) {
    findings.note(fmt::format("shards {} on {} of the tensor axis were not checked: {}", how, with_noun(ranks, "rank"),
                              e.message()));
    return;
  }
  to.push_back(std::move(divided));
}

}  // namespace

std::vector<Divided> divisions_of(const Model& model, int32_t ranks, Findings& findings) {
  std::vector<Divided> result;
  auto any = [&](Applies applies) {
    return std::ranges::any_of(model.layers(), [&](const Layer& layer) { return applies(model, layer); });
  };
  if (any(is_declared)) {
    Division division = division_by(model, ranks, is_declared, as_declared);
    for (size_t p = 0; p < model.params().size(); ++p)
      division.split[p] = model.params()[p].shard_kind == GSEL_SHARD_DIM;
    add(model, ranks, "by what the model declares", division, findings, result);
  }
  if (any(has_positions))
    add(model, ranks, "by positions", division_by(model, ranks, has_positions, by_position), findings, result);
  return result;
}

// ---- the check of a layer ------------------------------------------------------------------------------------------

namespace {

// Makes a rank's buffer, a shard or a copy, from the whole buffer.
void take(const Buffer& whole, const Shard& shard, Buffer& out) {
  if (shard.is_whole())
    out.bytes = whole.bytes;
  else
    take_shard(whole, shard, out);
}

const Layer* layer_of(const Model& model, int32_t origin) {
  const auto found = std::ranges::find(model.layers(), origin, &Layer::origin);
  return found == model.layers().end() ? nullptr : &*found;
}

Member member_of(const Model& model, const Layer& layer, const Member& whole) {
  Member m(model, layer, whole.sample_ids);
  for (size_t i = 0; i < layer.params.size(); ++i)
    take(whole[GSEL_BUFFER_PARAM][i], model.params()[layer.params[i]].shard, m[GSEL_BUFFER_PARAM][i]);
  for (size_t i = 0; i < layer.inputs.size(); ++i)
    take(whole[GSEL_BUFFER_INPUT][i], model.values()[layer.inputs[i]].shard, m[GSEL_BUFFER_INPUT][i]);
  for (size_t i = 0; i < layer.outputs.size(); ++i)
    take(whole[GSEL_BUFFER_D_OUTPUT][i], model.values()[layer.outputs[i]].shard, m[GSEL_BUFFER_D_OUTPUT][i]);
  return m;
}

}  // namespace

LayerCheck::Together LayerCheck::together_of(std::span<const Member> ranks, int32_t role, size_t i) {
  auto shard = [&](const Member& m) {
    const Layer& layer = *m.layer;
    if (role == GSEL_BUFFER_D_PARAM) return m.model->params()[layer.params[i]].shard;
    return m.model->values()[role == GSEL_BUFFER_OUTPUT ? layer.outputs[i] : layer.inputs[i]].shard;
  };
  const Member& first = ranks.front();
  Together result;
  if (!shard(first).is_whole()) {
    result.how = Together::in_shards;
    for (const Member& m : ranks) result.shards.push_back(shard(m));
    return result;
  }
  const Layer& layer = *first.layer;
  const bool is_sum = role == GSEL_BUFFER_D_PARAM ? first.model->params()[layer.params[i]].partial_gradient
                      : role == GSEL_BUFFER_OUTPUT
                          ? first.model->values()[layer.outputs[i]].placement == Placement::partial
                          : first.model->values()[layer.inputs[i]].placement == Placement::copy;
  if (is_sum) result.how = Together::as_sum;
  return result;
}

void LayerCheck::check_shards(const Divided& divided) {
  if (!settings_.looks_for(GSEL_BREACH_PARTS)) return;
  std::vector<Member> ranks;
  for (const Model& model : divided.models) {
    const Layer* layer = layer_of(model, a_.layer->origin);
    if (!layer || !layer->divided) return;
    ranks.push_back(member_of(model, *layer, a_));
    ranks.back().shard_index = static_cast<int32_t>(ranks.size()) - 1;
    ranks.back().shard_count = static_cast<int32_t>(divided.models.size());
  }
  const std::string what = fmt::format("put together from {} of the tensor axis {}, and on one rank",
                                       with_noun(divided.models.size(), "rank"), divided.how);
  auto compare_all = [&](int32_t role, const std::vector<Buffer>& wholes, int32_t callback) {
    for (const Buffer& whole : wholes)
      if (!whole.is_absent)
        compare(GSEL_BREACH_PARTS, callback, ranks, whole, together_of(ranks, role, static_cast<size_t>(whole.index)),
                what);
  };
  if (!caller_.run(ranks, GSEL_AXIS_TENSOR, round(GSEL_FORWARD))) return;
  compare_all(GSEL_BUFFER_OUTPUT, a_[GSEL_BUFFER_OUTPUT], GSEL_FORWARD);
  if (!gradients_) return;
  run_backward(ranks, GSEL_AXIS_TENSOR);
  const bool is_fused = a_.layer->backward;
  compare_all(GSEL_BUFFER_D_INPUT, (*gradients_)[GSEL_BUFFER_D_INPUT], is_fused ? GSEL_BACKWARD : GSEL_BACKWARD_INPUT);
  compare_all(GSEL_BUFFER_D_PARAM, (*gradients_)[GSEL_BUFFER_D_PARAM], is_fused ? GSEL_BACKWARD : GSEL_BACKWARD_WEIGHT);
}

}  // namespace gsel::check
