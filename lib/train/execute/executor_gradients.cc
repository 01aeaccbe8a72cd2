// train/execute/executor_gradients.cc: where a backward writes. The first contribution to a gradient is written in
// place, later ones are added: those of values by the library, from scratch, those of parameters by the callback.
#include <algorithm>

#include "train/execute/executor.h"
#include "train/memory/views.h"

namespace gsel {
namespace {

using Access = Lender::Access;

bool has_input_half(gsel_instr_kind kind) {
  return kind != GSEL_BACKWARD_WEIGHT;
}
bool has_weight_half(gsel_instr_kind kind) {
  return kind != GSEL_BACKWARD_INPUT;
}

}  // namespace

void Executor::zero(void* memory, uint64_t bytes) const {
  backend_->run(&gsel_backend_v1::zero, memory, bytes, static_cast<gsel_stream*>(nullptr));
}

// Before the first phase. Where there turned out to be no samples windows open all the same; where the program has none
// they open later, at the first instruction that needs them.
void Executor::begin_backward(const gsel_instr& instr, const Layer& layer) {
  call_.accumulate = 0;
  if (!has_weight_half(instr.kind)) return;
  for (int32_t p : layer.params)
    if (model_.params()[p].trainable() && program().microbatches[instr.microbatch].count > 0)
      open_gradient_window(params_.bucket_of(p));
  if (!is_empty(instr.microbatch)) begin_weight_gradients(layer);
}

// All parameters of a layer share one `accumulate`; where a tied one already has a gradient, or the layer always adds,
// the others start at zero.
void Executor::begin_weight_gradients(const Layer& layer) {
  auto begun = [&](int32_t p) { return model_.params()[p].trainable() && weight_begun_[p]; };
  call_.accumulate = layer.always_accumulates() || std::ranges::any_of(layer.params, begun);
  if (!call_.accumulate) return;
  for (int32_t p : layer.params)
    if (model_.params()[p].trainable() && !weight_begun_[p]) zero_gradient(p);
}

void Executor::zero_gradient(int32_t p) {
  zero(params_.gradient(p), sizeof(float) * static_cast<uint64_t>(model_.params()[p].n_elems));
  weight_begun_[p] = true;
}

void Executor::lend_gradients(const gsel_instr& instr, const Layer& layer) {
  const int32_t mb = instr.microbatch;
  const Access written = phase_ ? Access::update : Access::write;
  t_d_outputs_.clear();
  t_d_inputs_.clear();
  t_d_params_.clear();
  for (int32_t v : layer.outputs)
    t_d_outputs_.push_back(lender_.lend(value_view(v, mb, at(plan().gradient(position_, v, mb))), Access::read));
  for (int32_t v : layer.inputs) {
    void* place = nullptr;
    if (has_input_half(instr.kind) && model_.values()[v].needs_gradient) place = contribution_place(v, mb);
    t_d_inputs_.push_back(lender_.lend(value_view(v, mb, place), written));
  }
  if (!has_weight_half(instr.kind)) return;
  for (int32_t p : layer.params)
    t_d_params_.push_back(lender_.lend(gradient_tensor(model_.params()[p], params_.gradient(p)),
                                       call_.accumulate ? Access::update : written));
}

// In place for the first contribution; where the plan has scratch, others came before it.
void* Executor::contribution_place(int32_t v, int32_t mb) const {
  void* scratch = at(plan().scratch(position_, v, mb));
  return scratch ? scratch : at(plan().gradient(position_, v, mb));
}

void Executor::finish_contribution(int32_t v, int32_t mb) {
  const void* scratch = at(plan().scratch(position_, v, mb));
  if (!scratch) return;
  const Value& value = model_.values()[v];
  backend_->run(&gsel_backend_v1::add, at(plan().gradient(position_, v, mb)), scratch, value.dtype,
                static_cast<uint64_t>(value_elems(value, program().microbatches[mb].count)),
                static_cast<gsel_stream*>(nullptr));
}

void Executor::finish_backward(const gsel_instr& instr, const Layer& layer) {
  const int32_t mb = instr.microbatch;
  if (has_input_half(instr.kind))
    for (int32_t v : layer.inputs) {
      if (!model_.values()[v].needs_gradient) continue;
      if (layer.is_loss()) scale_contribution(v, mb);
      finish_contribution(v, mb);
    }
  if (has_weight_half(instr.kind)) {
    finish_weight_gradients(layer);
    look_for_non_finite(instr, layer);
  }
  if (static_cast<int32_t>(position_) == run_plan_->last_backward) backward_done_.record(nullptr);
}

// From here on all gradients of the step carry the loss scale.
void Executor::scale_contribution(int32_t v, int32_t mb) {
  if (loss_scale_.value() == 1) return;
  const Value& value = model_.values()[v];
  backend_->run(&gsel_backend_v1::scale, contribution_place(v, mb), value.dtype, loss_scale_.value(),
                static_cast<uint64_t>(value_elems(value, program().microbatches[mb].count)),
                static_cast<gsel_stream*>(nullptr));
}

// A gradient that was not produced stays without contribution; it is zeroed when somebody else reads it.
void Executor::finish_weight_gradients(const Layer& layer) {
  for (size_t i = 0; i < layer.params.size(); ++i) {
    const int32_t p = layer.params[i];
    if (!model_.params()[p].trainable() || !produced_[i]) continue;
    weight_begun_[p] = used_[p] = true;
  }
}

// A parameter that no sample of this rank reached has gradient zero.
void Executor::zero_missing_gradients(int32_t bucket) {
  for (int32_t p : program().buckets[bucket].params)
    if (!weight_begun_[p]) zero_gradient(p);
}

void Executor::forget_contributions(int32_t bucket) {
  for (int32_t p : program().buckets[bucket].params) weight_begun_[p] = false;
}

void Executor::open_gradient_window(int32_t bucket) {
  if (params_.whole_gradient(bucket)) return;
  const uint64_t offset = plan().gradient_window(position_, bucket);
  if (offset == ArenaPlan::kNone)
    fail(GSEL_ERR_INTERNAL, "the gradient of bucket {} has no place at step instruction {}", bucket, position_);
  params_.open_gradient(bucket, at(offset));
  forget_contributions(bucket);
}

}  // namespace gsel
