// train/execute/instructions/layer_gradients.cc: where a backward writes gradients. The first contribution to a
// gradient is written in place, later ones are added: gradients of values by the library, from scratch memory,
// gradients of parameters by the callback.
#include <algorithm>

#include "model/views.h"
#include "train/execute/instructions.h"

namespace gsel::execute {
namespace {

using Access = Lender::Access;

// All parameters of a layer share one `accumulate`. If a tied one already has a gradient, or the layer always adds, it
// is 1, and the gradients of the others are zeroed first.
void begin_weight_gradients(State& s, const Layer& layer) {
  auto begun = [&](int32_t p) { return s.model.params()[p].trainable() && s.run->weight_begun[p]; };
  s.lent.call.accumulate = layer.always_accumulates() || std::ranges::any_of(layer.params, begun);
  if (!s.lent.call.accumulate) return;
  for (int32_t p : layer.params)
    if (s.model.params()[p].trainable() && !s.run->weight_begun[p]) zero_gradient(s, p);
}

// A gradient that was not produced has no contribution yet; it is zeroed when something reads it.
void finish_weight_gradients(State& s, const Layer& layer) {
  for (size_t i = 0; i < layer.params.size(); ++i) {
    const int32_t p = layer.params[i];
    if (!s.model.params()[p].trainable() || !s.lent.produced[i]) continue;
    s.run->weight_begun[p] = s.run->used[p] = true;
  }
}

// For kernels that always accumulate.
void zero_contributions(State& s, const Layer& layer, int32_t mb) {
  for (size_t i = 0; i < layer.inputs.size(); ++i) {
    const Value& value = s.model.values()[layer.inputs[i]];
    if (value.needs_gradient)
      s.device->enqueue(&gsel_device_v1::zero, s.at(s.operands().inputs[i].contribution()),
                        static_cast<uint64_t>(value_bytes(value, s.program().microbatches[mb].count)));
  }
}

// From here on all gradients of the step include the loss scale.
void scale_contribution(State& s, const ArenaOperands::OfValue& operand, int32_t v, int32_t mb) {
  if (s.loss_scale.value() == 1) return;
  const Value& value = s.model.values()[v];
  s.device->enqueue(&gsel_device_v1::scale, s.at(operand.contribution()), value.dtype, s.loss_scale.value(),
                    static_cast<uint64_t>(value_elems(value, s.program().microbatches[mb].count)));
}

}  // namespace

// ---- before the callback ------------------------------------------------------------------------------------------

// Before the first phase. Opens the windows of gradients, also for a micro-batch whose data ended early. A micro-batch
// that is empty in the program opens none; they open at the first instruction that needs them.
void begin_backward(State& s, const gsel_instr& instr, const Layer& layer) {
  s.lent.call.accumulate = 0;
  if (layer.always_accumulates() && known_form_of(instr.kind).input_half && !s.is_empty(instr.microbatch))
    zero_contributions(s, layer, instr.microbatch);
  if (!known_form_of(instr.kind).weight_half) return;
  for (size_t i = 0; i < layer.params.size(); ++i)
    if (const int32_t p = layer.params[i];
        s.model.params()[p].trainable() && s.program().microbatches[instr.microbatch].count > 0)
      open_gradient_window(s, s.params.bucket_of(p), s.operands().params[i].gradient_window);
  if (!s.is_empty(instr.microbatch)) begin_weight_gradients(s, layer);
}

void lend_gradients(State& s, const gsel_instr& instr, const Layer& layer) {
  const int32_t mb = instr.microbatch;
  const ArenaOperands& operands = s.operands();
  const Access written = s.run->phase ? Access::update : Access::write;
  s.lent.t_d_outputs.clear();
  s.lent.t_d_inputs.clear();
  s.lent.t_d_params.clear();
  for (size_t i = 0; i < layer.outputs.size(); ++i)
    s.lent.t_d_outputs.push_back(
        s.lent.lender.lend(value_view(s, layer.outputs[i], mb, s.at(operands.outputs[i].gradient)), Access::read));
  for (size_t i = 0; i < layer.inputs.size(); ++i)
    s.lent.t_d_inputs.push_back(
        s.lent.lender.lend(value_view(s, layer.inputs[i], mb, s.at(operands.inputs[i].contribution())),
                           layer.always_accumulates() ? Access::update : written));
  if (!known_form_of(instr.kind).weight_half) return;
  for (int32_t p : layer.params)
    s.lent.t_d_params.push_back(s.lent.lender.lend(gradient_tensor(s.model.params()[p], s.params.gradient(p)),
                                                   s.lent.call.accumulate ? Access::update : written));
}

// ---- after the callback -------------------------------------------------------------------------------------------

void finish_backward(State& s, const gsel_instr& instr, const Layer& layer) {
  const int32_t mb = instr.microbatch;
  if (known_form_of(instr.kind).input_half)
    for (size_t i = 0; i < layer.inputs.size(); ++i) {
      const int32_t v = layer.inputs[i];
      if (!s.model.values()[v].needs_gradient) continue;
      if (layer.is_loss()) scale_contribution(s, s.operands().inputs[i], v, mb);
      finish_contribution(s, s.operands().inputs[i], v, mb);
    }
  if (known_form_of(instr.kind).weight_half) finish_weight_gradients(s, layer);
  look_for_non_finite(s, instr, layer);
  if (s.is_at_last_backward()) s.backward_done.record_compute();
}

// ---- contributions to a value's gradient --------------------------------------------------------------------------

void finish_contribution(State& s, const ArenaOperands::OfValue& operand, int32_t v, int32_t mb) {
  const void* scratch = s.at(operand.scratch);
  if (!scratch) return;
  const Value& value = s.model.values()[v];
  s.add(s.at(operand.gradient), scratch, value.dtype,
        static_cast<uint64_t>(value_elems(value, s.program().microbatches[mb].count)));
}

}  // namespace gsel::execute
