// train/trainer_questions.cc: a trainer's queries between steps: values, parameters, reports, memory.
#include <bit>
#include <cmath>
#include <span>

#include "base/options.h"
#include "base/random.h"
#include "base/text.h"
#include "model/views.h"
#include "train/joint_calls.h"
#include "train/trainer.h"

namespace gsel {

const gsel_step_report& Trainer::report() const {
  if (pulled_evaluation_) return *pulled_evaluation_;
  if (!executor_->last_step()) fail(GSEL_ERR_STATE, "no step is finished yet");
  return executor_->last_step()->report;
}

std::string Trainer::step_json() const {
  if (!executor_->last_step()) fail(GSEL_ERR_STATE, "no step is finished yet");
  return to_json(program_, *executor_->last_step(), !config_.train.timeline.empty());
}

gsel_comm_count Trainer::counts(gsel_instr_kind kind, gsel_axis axis) const {
  refuse_in_child();
  return executor_->counts(kind, axis);
}

gsel_memory_part Trainer::memory_part(int32_t i) const {
  refuse_in_child();
  check_index(i, kMemoryParts, "i");
  const auto part = static_cast<MemoryPart>(i);
  return gsel_memory_part{sizeof(gsel_memory_part), is_offloaded(part) ? 1 : 0, memory_part_name(part),
                          executor_->forecast()[i], executor_->ledger().peak()[i]};
}

const Param& Trainer::checked_param(int32_t param) const {
  if (param < 0 || static_cast<size_t>(param) >= model_->params().size())
    fail(GSEL_ERR_ARG, "parameter {} was asked for; parameters 0 to {} exist", param,
         static_cast<int64_t>(model_->params().size()) - 1);
  return model_->params()[param];
}

bool Trainer::param_used(int32_t param) const {
  checked_param(param);
  return executor_->param_used(param);
}

bool Trainer::holds_params() const {
  return WholeParams::kept_everywhere(program_);
}

void Trainer::infer(int32_t value, int64_t n_samples, DataSource data, void* dst, size_t dst_bytes) {
  refuse_in_child();
  refuse_under_way("infer");
  if (value < 0 || static_cast<size_t>(value) >= model_->values().size())
    fail(GSEL_ERR_ARG, "value {} was asked for; values 0 to {} exist", value,
         static_cast<int64_t>(model_->values().size()) - 1);
  if (n_samples < 1) fail(GSEL_ERR_ARG, "{} were asked for; at least 1 is possible", with_noun(n_samples, "sample"));
  if (!data.fill || !dst) fail(GSEL_ERR_ARG, "{} is NULL", data.fill ? "dst" : "data");
  const Value& wanted = model_->values()[value];
  if (const uint64_t bytes = value_bytes(wanted, n_samples); bytes != dst_bytes)
    fail(GSEL_ERR_ARG, "dst has {} bytes; value \"{}\" of {} has {} bytes", dst_bytes, wanted.name,
         with_noun(n_samples, "sample"), bytes);
  if (executor_->broken()) fail(GSEL_ERR_STATE, "an earlier step failed; free the trainer");
  if (!holds_params()) begin_joint_call(comm_, *executor_, JointCall::infer, value);
  executor_->settle_last_step();
  if (!inference_ || !inference_->fits(value, n_samples)) {
    inference_.reset();
    inference_.emplace(*executor_, *local_, *model_, program_, value, n_samples);
  }
  inference_->run(data, derive_key(static_cast<uint64_t>(config_.train.seed), "inference"), dst);
}

const Param& Trainer::checked_read(int32_t param, const void* dst, size_t dst_bytes) const {
  const Param& p = checked_param(param);
  const uint64_t bytes = static_cast<uint64_t>(p.n_elems) * sizeof(float);
  if (!dst || bytes != dst_bytes)
    fail(GSEL_ERR_ARG, "dst has {} bytes; parameter \"{}\" has {} bytes", dst ? dst_bytes : 0, p.name, bytes);
  return p;
}

void Trainer::read_param(int32_t param, void* dst, size_t dst_bytes) {
  refuse_in_child();
  checked_read(param, dst, dst_bytes);
  refuse_under_way("read parameters");
  if (!holds_params()) begin_joint_call(comm_, *executor_, JointCall::read_param, param);
  executor_->settle_last_step();
  WholeParams(*executor_, *local_, program_).read(param, static_cast<float*>(dst));
}

void Trainer::read_gradient(int32_t param, void* dst, size_t dst_bytes) {
  refuse_in_child();
  const Param& p = checked_read(param, dst, dst_bytes);
  if (!p.trainable()) fail(GSEL_ERR_ARG, "parameter \"{}\" is frozen and has no gradient", p.name);
  if (optimizer_->poisons_gradients())
    fail(GSEL_ERR_UNSUPPORTED,
         "the optimizer of the embedder may have overwritten gradients; it is given them in its call");
  refuse_under_way("read gradients");
  if (!executor_->last_step()) fail(GSEL_ERR_STATE, "no step is finished yet; gradients are those of the last step");
  begin_joint_call(comm_, *executor_, JointCall::read_gradient, param);
  executor_->settle_last_step();
  const gsel_step_report& step = executor_->last_step()->report;
  const auto factor = static_cast<float>(1 / (step.weight * step.loss_scale));
  const std::span<float> gradient(static_cast<float*>(dst), static_cast<size_t>(p.n_elems));
  WholeParams(*executor_, *local_, program_).read_gradient(param, gradient.data());
  for (float& g : gradient) g *= factor;
}

void Trainer::set_learning_rate(double rate) {
  refuse_in_child();
  if (!(rate >= 0) || !std::isfinite(rate))
    fail(GSEL_ERR_ARG, "learning_rate is {}; expected a finite number of at least 0", rate);
  refuse_under_way("set the learning rate");
  begin_joint_call(comm_, *executor_, JointCall::set_learning_rate, std::bit_cast<int64_t>(rate));
  executor_->settle_last_step();  // a repeated step uses its old rate
  optimizer_->set_learning_rate(rate);
}

}  // namespace gsel
