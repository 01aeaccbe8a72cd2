// train/check/divisions.cc: see model_check.h. Divides as the plugins tp and cp do (plugins/strategy/common), but takes
// each positionwise layer by itself.
#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "model/divide.h"
#include "train/check/model_check.h"

namespace gsel::check {
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
    findings.note(fmt::format("parts {} on {} of the tensor axis were not checked: {}", how, with_noun(ranks, "rank"),
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
    for (size_t p = 0; p < model.params().size(); ++p) division.split[p] = model.params()[p].shard_kind == GSEL_SHARD_DIM;
    add(model, ranks, "by what the model declares", division, findings, result);
  }
  if (any(has_positions))
    add(model, ranks, "by positions", division_by(model, ranks, has_positions, by_position), findings, result);
  return result;
}

}  // namespace gsel::check
