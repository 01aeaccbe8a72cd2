// train/check/layer_check.cc: the order of checks. See layer_check.h.
#include "train/check/layer_check.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/random.h"

namespace gsel::check {
namespace {

std::vector<gsel_dtype> float_types(const Member& m) {
  std::vector<gsel_dtype> types;
  for (int32_t role : {GSEL_BUFFER_PARAM, GSEL_BUFFER_INPUT, GSEL_BUFFER_OUTPUT})
    for (const Buffer& buffer : m[role])
      if (buffer.is_float()) types.push_back(buffer.view.dtype);
  return types;
}

}  // namespace

LayerCheck::LayerCheck(Caller& caller, const Settings& settings, Member member)
    : caller_(caller),
      settings_(settings),
      tolerance_(tolerance_of(float_types(member))),
      a_(std::move(member)),
      b_(a_) {
  const uint64_t key = derive_key(derive_key(settings.seed, "gradients of outputs"), a_.layer->name);
  for (size_t i = 0; i < a_[GSEL_BUFFER_D_OUTPUT].size(); ++i)
    fill_random(a_[GSEL_BUFFER_D_OUTPUT][i], derive_key(key, i), 1, 1);
  b_[GSEL_BUFFER_D_OUTPUT] = a_[GSEL_BUFFER_D_OUTPUT];
}

Round LayerCheck::round(int32_t callback) const {
  Round round;
  round.callback = callback;
  round.rng_key = derive_key(derive_key(settings_.seed, "noise"), a_.layer->name);
  round.accumulate = callback != GSEL_FORWARD && a_.layer->always_accumulates();
  return round;
}

std::vector<int32_t> LayerCheck::backward_callbacks() const {
  const Layer& layer = *a_.layer;
  std::vector<int32_t> result;
  if (layer.backward_input && layer.needs_backward_input) result.push_back(GSEL_BACKWARD_INPUT);
  if (layer.backward_weight && layer.needs_backward_weight) result.push_back(GSEL_BACKWARD_WEIGHT);
  if (layer.backward && layer.needs_backward()) result.push_back(GSEL_BACKWARD);
  return result;
}

bool LayerCheck::backward_is_sound() const {
  return std::ranges::all_of(backward_callbacks(), [&](int32_t callback) { return is_sound(callback); });
}

bool LayerCheck::check_forward() {
  Member a = a_, b = b_;
  if (!check_memory(round(GSEL_FORWARD), a, b)) return false;
  a_ = std::move(a);
  b_ = std::move(b);
  check_evaluation();
  return true;
}

void LayerCheck::check_backward() {
  for (int32_t callback : backward_callbacks()) {
    Member a = a_, b = b_;
    if (!check_memory(round(callback), a, b)) continue;
    if (callback == GSEL_BACKWARD_INPUT) continue;
    check_accumulation(callback);
    if (a_.layer->always_accumulates()) note_untouched(callback);
  }
  if (!backward_is_sound()) return;
  gradients_ = a_;
  run_backward({&*gradients_, 1}, GSEL_AXIS_TENSOR);
  check_halves();
  if (settings_.looks_for(GSEL_BREACH_BATCH)) check_batch();
  if (settings_.looks_for(GSEL_BREACH_GRADIENT)) check_gradients();
}

// The fused backward if there is one, as in the executor; else both halves.
void LayerCheck::run_backward(std::span<Member> ranks, gsel_axis axis) {
  const bool is_fused = a_.layer->backward;
  for (int32_t callback : backward_callbacks())
    if (is_fused == (callback == GSEL_BACKWARD)) caller_.run(ranks, axis, round(callback));
}

}  // namespace gsel::check
