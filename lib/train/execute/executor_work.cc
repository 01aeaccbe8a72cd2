// train/execute/executor_work.cc: what the executor hands out and takes back. A layer with n phases is n + 1 works in a
// row; its reductions come between. A micro-batch without samples hands out nothing and joins the reductions with the
// element that changes no result.
#include <algorithm>
#include <numeric>

#include "base/dtype.h"
#include "base/random.h"
#include "train/execute/executor.h"
#include "train/memory/views.h"

namespace gsel {
namespace {

using Access = Lender::Access;

bool is_forward(gsel_instr_kind kind) {
  return kind == GSEL_FORWARD || kind == GSEL_INSTR_RECOMPUTE;
}

int32_t work_kind(gsel_instr_kind kind) {
  switch (kind) {
    case GSEL_FORWARD:
    case GSEL_INSTR_RECOMPUTE:
      return GSEL_FORWARD;
    case GSEL_BACKWARD_INPUT:
      return GSEL_BACKWARD_INPUT;
    case GSEL_BACKWARD_WEIGHT:
      return GSEL_BACKWARD_WEIGHT;
    default:
      return GSEL_BACKWARD;
  }
}

}  // namespace

gsel_tensor Executor::value_view(int32_t v, int32_t mb, void* data) const {
  return value_tensor(model_.values()[v], program().microbatches[mb].count, data);
}

void Executor::list_samples(const Microbatch& mb) {
  sample_ids_.resize(mb.count);
  std::iota(sample_ids_.begin(), sample_ids_.end(), first_sample_ + mb.first);
}

void Executor::hand_out(int32_t kind) {
  message_[0] = '\0';
  work_kind_ = kind;
  handed_out_ = true;
  ++ticket_;
}

// ---- inputs ---------------------------------------------------------------------------------------------------

bool Executor::hand_out_input(const gsel_instr& instr) {
  if (is_empty(instr.microbatch) || goes_on_without_callbacks()) return false;
  const Microbatch& mb = program().microbatches[instr.microbatch];
  list_samples(mb);
  const gsel_tensor dst =
      value_view(instr.value, instr.microbatch, at(plan().value(position_, instr.value, instr.microbatch)));
  request_ = {};
  request_.struct_size = sizeof request_;
  request_.value = instr.value;
  request_.microbatch = instr.microbatch;
  request_.n_samples = mb.count;
  request_.sample_ids = sample_ids_.data();
  request_.dst = lender_.lend(dst, Access::write);
  request_.message = message_.data();
  request_.message_capacity = message_.size();
  hand_out(GSEL_INPUT);
  return true;
}

void Executor::take_back_input(const gsel_instr& instr, bool no_samples) {
  lender_.take_back();
  if (!no_samples) return;
  if (axis_size(GSEL_AXIS_PIPELINE) > 1)
    throw Error(GSEL_ERR_CALLBACK,
                fmt::format("input \"{}\" had no samples {}, micro-batch {}; other stages of this pipeline of {} ranks "
                            "would wait for them, so every batch must be complete",
                            model_.values()[instr.value].name, where_in_step(), instr.microbatch,
                            axis_size(GSEL_AXIS_PIPELINE)))
        .about_rank(comms_.world().rank());
  for (const gsel_instr& other : program().step)
    if (other.kind == GSEL_INSTR_SCATTER)
      throw Error(
          GSEL_ERR_CALLBACK,
          fmt::format("input \"{}\" had no samples {}, micro-batch {}; this strategy divides the batch of one "
                      "rank among all (\"{}\"), so every batch must be complete",
                      model_.values()[instr.value].name, where_in_step(), instr.microbatch, to_text(program(), other)))
          .about_rank(comms_.world().rank());
  empty_[instr.microbatch] = true;
  losses_[instr.microbatch] = {};
}

// ---- layers ---------------------------------------------------------------------------------------------------

bool Executor::hand_out_layer(const gsel_instr& instr) {
  const Layer& layer = layer_of(instr);
  if (layer.redistributes) {
    convert(instr);
    return false;
  }
  if (phase_ == 0) {
    produced_.assign(layer.params.size(), 1);
    if (!is_forward(instr.kind)) begin_backward(instr, layer);
  }
  if (is_empty(instr.microbatch)) {
    join_phases(instr);
    if (static_cast<int32_t>(position_) == run_plan_->last_backward) backward_done_.record(nullptr);
    return false;
  }
  if (goes_on_without_callbacks()) {
    go_through_phases(instr);
    return false;
  }
  if (phase_ > 0) reduce_phase(instr, phase_ - 1);
  lend_call(instr, layer);
  hand_out(work_kind(instr.kind));
  return true;
}

void Executor::lend_call(const gsel_instr& instr, const Layer& layer) {
  const Microbatch& mb = program().microbatches[instr.microbatch];
  const int32_t accumulate = call_.accumulate;  // decided when the backward began
  list_samples(mb);
  call_ = {};
  lend_values(instr, layer);
  if (!is_forward(instr.kind)) {
    call_.accumulate = accumulate;
    lend_gradients(instr, layer);
  }
  call_.struct_size = sizeof call_;
  call_.layer = layer.origin;
  call_.microbatch = instr.microbatch;
  call_.n_samples = mb.count;
  call_.sample_ids = sample_ids_.data();
  call_.params = t_params_.data();
  call_.inputs = t_inputs_.data();
  call_.outputs = t_outputs_.data();
  call_.d_outputs = t_d_outputs_.data();
  call_.d_inputs = t_d_inputs_.data();
  call_.d_params = t_d_params_.data();
  call_.n_params = static_cast<int32_t>(layer.params.size());
  call_.n_inputs = static_cast<int32_t>(layer.inputs.size());
  call_.n_outputs = static_cast<int32_t>(layer.outputs.size());
  const auto seed = static_cast<uint64_t>(config_.train.seed);
  call_.rng_key =
      derive_key(inference_ ? inference_->rng_key : derive_key(seed, static_cast<uint64_t>(step_)), layer.name);
  call_.message = message_.data();
  call_.message_capacity = message_.size();
  call_.user_data = layer.user_data;
  call_.step = step_;
  call_.evaluating = evaluating_;
  call_.phase = static_cast<int32_t>(phase_);
  call_.reductions = t_reductions_.data();
  call_.n_reductions = static_cast<int32_t>(t_reductions_.size());
  call_.produced = produced_.data();
  lend_parts(layer);
}

void Executor::lend_parts(const Layer& layer) {
  param_parts_.clear();
  input_parts_.clear();
  output_parts_.clear();
  for (int32_t p : layer.params) param_parts_.push_back(model_.params()[p].part.view());
  for (int32_t v : layer.inputs) input_parts_.push_back(model_.values()[v].part.view());
  for (int32_t v : layer.outputs) output_parts_.push_back(model_.values()[v].part.view());
  call_.param_parts = param_parts_.data();
  call_.input_parts = input_parts_.data();
  call_.output_parts = output_parts_.data();
  call_.shard_index = axis_place(sharing_axis());
  call_.shard_count = axis_size(sharing_axis());
}

// What a forward writes is lent to be written at first, and to be changed in later phases.
void Executor::lend_values(const gsel_instr& instr, const Layer& layer) {
  const int32_t mb = instr.microbatch;
  const Access written = !is_forward(instr.kind) ? Access::read : phase_ ? Access::update : Access::write;
  t_params_.clear();
  t_inputs_.clear();
  t_outputs_.clear();
  t_reductions_.clear();
  for (size_t i = 0; i < layer.params.size(); ++i)
    t_params_.push_back(lend_param(layer.params[i], layer.reads_param(instr.kind, i)));
  for (size_t i = 0; i < layer.inputs.size(); ++i) {
    const int32_t v = layer.inputs[i];
    void* data = layer.reads_input(instr.kind, i) ? at(plan().value(position_, v, mb)) : nullptr;
    t_inputs_.push_back(lender_.lend(value_view(v, mb, data), Access::read));
  }
  for (size_t i = 0; i < layer.outputs.size(); ++i) {
    const int32_t v = layer.outputs[i];
    void* data = layer.reads_output(instr.kind, i) ? at(plan().value(position_, v, mb)) : nullptr;
    t_outputs_.push_back(lender_.lend(value_view(v, mb, data), written));
  }
  const uint64_t bytes = saved_bytes(layer, program().microbatches[mb].count);
  if (bytes && layer.reads_saved(instr.kind)) {
    call_.saved = lender_.lend_bytes(at(plan().saved(position_, instr.layer, mb)), bytes, written);
    call_.saved_bytes = bytes;
  }
  const std::vector<gsel_phase>& buffers = buffers_of(instr);
  for (size_t i = 0; i < buffers.size(); ++i) {
    void* data = buffer_place(instr, static_cast<int32_t>(i), phase_);
    t_reductions_.push_back(
        lender_.lend(phase_tensor(buffers[i], program().microbatches[mb].count, data), Access::update));
  }
}

gsel_tensor Executor::lend_param(int32_t p, bool reads) {
  const Param& param = model_.params()[p];
  if (!reads) return param_tensor(param, nullptr);
  void* kept = params_.param(p);
  if (!kept)
    fail(GSEL_ERR_INTERNAL, "parameter \"{}\" is read at step instruction {} and not gathered", param.name, position_);
  const gsel_dtype kept_as = params_.layout(params_.bucket_of(p)).dtype;
  if (kept_as == param.dtype) return lender_.lend(param_tensor(param, kept), Access::read);
  void* cast = at(plan().cast(position_, p));
  backend_->run(&gsel_backend_v1::cast, cast, param.dtype, static_cast<const void*>(kept), kept_as,
                static_cast<uint64_t>(param.n_elems), static_cast<gsel_stream*>(nullptr));
  return lender_.lend(param_tensor(param, cast), Access::read);
}

void Executor::take_back_layer(const gsel_instr& instr) {
  lender_.take_back();
  if (phase_ < phases_of(instr).size()) {
    ++phase_;
    return;
  }
  phase_ = 0;
  if (instr.kind == GSEL_FORWARD && layer_of(instr).is_loss() && !inference_) collect_loss(instr);
  if (!is_forward(instr.kind)) finish_backward(instr, layer_of(instr));
}

void Executor::collect_loss(const gsel_instr& instr) {
  for (size_t i = 0; i < 2; ++i) {
    const uint64_t offset = plan().value(position_, layer_of(instr).outputs[i], instr.microbatch);
    backend_->run(&gsel_backend_v1::copy, static_cast<void*>(&losses_[instr.microbatch][i]),
                  static_cast<const void*>(at(offset)), uint64_t{sizeof(double)}, int32_t{GSEL_COPY_TO_HOST},
                  static_cast<gsel_stream*>(nullptr));
  }
}

}  // namespace gsel
