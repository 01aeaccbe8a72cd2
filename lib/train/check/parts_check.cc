// train/check/parts_check.cc: the shards of a layer on all ranks of the sharing axis, run in lockstep, against the
// whole layer. Buffers are sharded and put together by the placements of values and gradients in the divided model
// (model/divide.h). See layer_check.h.
#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "train/check/layer_check.h"

namespace gsel::check {
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
    result.how = Together::in_parts;
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

void LayerCheck::check_parts(const Divided& divided) {
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
