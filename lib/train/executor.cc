// train/executor.cc: the step: going through the program and handing out work. Communication and the optimizer stand
// in executor_collectives.cc.
#include "train/executor.h"

#include <algorithm>
#include <numeric>

#include "base/current_error.h"
#include "base/os.h"
#include "base/printable.h"
#include "base/random.h"

namespace gsel {
namespace {

int optimizer_states(const Config& config) {
  if (config.train.optimizer == "adamw") return 2;
  return config.train.optimizer == "sgd" && config.train.momentum != 0 ? 1 : 0;
}

int32_t find_last_backward(const Program& program) {
  for (auto i = static_cast<int32_t>(program.step.size()) - 1; i >= 0; --i) {
    const gsel_instr_kind kind = program.step[i].kind;
    if (kind == GSEL_INSTR_BACKWARD || kind == GSEL_INSTR_BACKWARD_INPUT || kind == GSEL_INSTR_BACKWARD_WEIGHT)
      return i;
  }
  return -1;
}

const char* callback_word(int32_t kind) {
  static const char* const words[] = {"", "input", "forward", "backward_input", "backward_weight", "backward"};
  return words[kind];
}

int32_t work_kind(gsel_instr_kind kind) {
  switch (kind) {
    case GSEL_INSTR_FORWARD:
      return GSEL_WORK_FORWARD;
    case GSEL_INSTR_BACKWARD_INPUT:
      return GSEL_WORK_BACKWARD_INPUT;
    case GSEL_INSTR_BACKWARD_WEIGHT:
      return GSEL_WORK_BACKWARD_WEIGHT;
    default:
      return GSEL_WORK_BACKWARD;
  }
}

}  // namespace

Executor::Executor(const Model& model, const Program& program, const Config& config, Communicator& comm)
    : model_(model),
      program_(program),
      config_(config),
      comm_(comm),
      backend_(comm.backend()),
      params_(backend_, model, program, optimizer_states(config)),
      plan_(model, program),
      values_(backend_, plan_.bytes()),
      loss_(backend_, 2 * sizeof(double)),
      compute_done_(backend_),
      backward_done_(backend_),
      last_backward_(find_last_backward(program)),
      gradient_begun_(model.values().size() * program.microbatches.size()),
      weight_begun_(model.params().size()) {
  for (const gsel_instr& instr : program.step)
    if (instr.kind == GSEL_INSTR_SEND || instr.kind == GSEL_INSTR_RECV)
      fail(GSEL_ERR_UNSUPPORTED, "the program has \"{}\"; this libgsel {} runs programs without send and recv",
           to_text(program, instr), gsel_version_text());
  if (comm.world_size() > 1) comm_stream_ = std::make_unique<Stream>(backend_);
  for (size_t b = 0; b < program.buckets.size(); ++b) reductions_.push_back({Event(backend_), Event(backend_)});
}

Executor::~Executor() = default;

void Executor::run_setup() {
  const gsel_comm_count before = comm_.counts(GSEL_COLLECTIVE_BROADCAST);
  for (const gsel_instr& instr : program_.setup) run_instr(instr);
  const gsel_comm_count after = comm_.counts(GSEL_COLLECTIVE_BROADCAST);
  broadcast_counts_ = {after.calls - before.calls, after.bytes_sent - before.bytes_sent};
}

gsel_work Executor::next() {
  if (broken_) fail(GSEL_ERR_STATE, "an earlier step failed; free the trainer");
  if (handed_out_)
    fail(GSEL_ERR_STATE, "work {} is handed out and not complete; call gsel_trainer_complete first", ticket_);
  try {
    if (!in_step_) begin_step();
    while (position_ < program_.step.size() && !run_instr(program_.step[position_])) ++position_;
    if (position_ == program_.step.size()) finish_step();
  } catch (...) {
    break_off(current_error().message());
    throw;
  }
  gsel_work work{};
  work.kind = handed_out_ ? work_kind_ : GSEL_WORK_DONE;
  work.ticket = handed_out_ ? ticket_ : 0;
  if (handed_out_) (work_kind_ == GSEL_WORK_INPUT ? (void)(work.input = &request_) : (void)(work.call = &call_));
  work_began_ = os::now_seconds();
  return work;
}

void Executor::complete(uint64_t ticket, gsel_status status, std::string_view message) {
  if (!handed_out_ || ticket != ticket_)
    fail(GSEL_ERR_STATE, "work {} is said to be complete; {}", ticket,
         handed_out_ ? fmt::format("work {} is handed out", ticket_) : "none is handed out");
  now_.compute_s += os::now_seconds() - work_began_;
  handed_out_ = false;
  if (status != GSEL_OK) fail_callback(status, message);
  try {
    if (work_kind_ != GSEL_WORK_INPUT) finish_layer(program_.step[position_]);
  } catch (...) {
    break_off(current_error().message());
    throw;
  }
  ++position_;
}

// No step can follow a failed one: ranks may differ in what they have applied. Other ranks would wait for this one
// until their timeout; abort tells them why at once.
void Executor::break_off(std::string_view reason) {
  broken_ = true;
  in_step_ = false;
  comm_.abort(reason);
}

void Executor::write_message(std::string_view text) {
  message_[text.copy(message_.data(), message_.size() - 1)] = '\0';
}

void Executor::fail_callback(gsel_status status, std::string_view message) {
  const gsel_instr& instr = program_.step[position_];
  const std::string what = work_kind_ == GSEL_WORK_INPUT
                               ? fmt::format("input \"{}\"", model_.values()[instr.value].name)
                               : fmt::format("layer \"{}\"", layer_of(instr).name);
  const std::string text = fmt::format("{} failed in {} on rank {}, step {}, micro-batch {}: {}", what,
                                       callback_word(work_kind_), comm_.rank(), step_, instr.microbatch,
                                       message.empty() ? gsel_status_name(status) : one_line(message));
  break_off(text);
  throw Error(GSEL_ERR_CALLBACK, text).about_rank(comm_.rank());
}

void Executor::begin_step() {
  in_step_ = true;
  position_ = 0;
  loss_sum_ = weight_ = 0;
  clip_ = 1;
  gradient_begun_.assign(gradient_begun_.size(), false);
  weight_begun_.assign(weight_begun_.size(), false);
  for (Reduction& r : reductions_) r.used = false;
  now_ = {};
  now_.struct_size = sizeof now_;
  now_.step = step_;
  step_began_ = os::now_seconds();
  for (gsel_collective_kind kind = 0; kind < GSEL_COLLECTIVE_KINDS; ++kind)
    now_.bytes_sent -= comm_.counts(kind).bytes_sent;
  allreduced_before_ = comm_.counts(GSEL_COLLECTIVE_ALLREDUCE);
}

void Executor::finish_step() {
  in_step_ = false;
  for (const Reduction& r : reductions_) {
    now_.n_reduces += r.used;
    now_.n_overlapped += r.used && r.begun.seconds_until(backward_done_) > 0;
  }
  for (gsel_collective_kind kind = 0; kind < GSEL_COLLECTIVE_KINDS; ++kind)
    now_.bytes_sent += comm_.counts(kind).bytes_sent;
  // Every collective of the step has been waited for; what is not the loss is gradients.
  const gsel_comm_count allreduced = comm_.counts(GSEL_COLLECTIVE_ALLREDUCE);
  reduce_counts_.calls += allreduced.calls - allreduced_before_.calls;
  reduce_counts_.bytes_sent += allreduced.bytes_sent - allreduced_before_.bytes_sent;
  now_.loss_sum = loss_sum_;
  now_.weight = weight_;
  now_.loss = loss_sum_ / weight_;
  now_.seconds = os::now_seconds() - step_began_;
  report_ = now_;
  ++step_;
}

bool Executor::run_instr(const gsel_instr& instr) {
  switch (instr.kind) {
    case GSEL_INSTR_INPUT:
      hand_out_input(instr);
      return true;
    case GSEL_INSTR_FORWARD:
    case GSEL_INSTR_BACKWARD_INPUT:
    case GSEL_INSTR_BACKWARD_WEIGHT:
    case GSEL_INSTR_BACKWARD:
      hand_out_layer(instr);
      return true;
    case GSEL_INSTR_BROADCAST:
    case GSEL_INSTR_REDUCE:
      begin_collective(instr);
      return false;
    case GSEL_INSTR_WAIT:
      wait_bucket(instr.bucket);
      return false;
    case GSEL_INSTR_LOSS_REDUCE:
      loss_reduce(instr);
      return false;
    case GSEL_INSTR_NORM:
      norm();
      return false;
    case GSEL_INSTR_STEP:
      step_bucket(instr.bucket);
      return false;
    default:
      fail(GSEL_ERR_INTERNAL, "instruction \"{}\" reached the executor", to_text(program_, instr));
  }
}

gsel_tensor Executor::value_view(int32_t v, int32_t mb, uint64_t offset) const {
  return value_tensor(model_.values()[v], program_.microbatches[mb].count, value_at(offset));
}

void Executor::hand_out_input(const gsel_instr& instr) {
  const Microbatch& mb = program_.microbatches[instr.microbatch];
  sample_ids_.resize(mb.count);
  std::iota(sample_ids_.begin(), sample_ids_.end(), step_ * config_.train.batch + mb.first);
  message_[0] = '\0';
  request_ = {sizeof request_,
              0,
              instr.value,
              instr.microbatch,
              mb.count,
              sample_ids_.data(),
              value_view(instr.value, instr.microbatch, plan_.value(instr.value, instr.microbatch)),
              message_.data(),
              message_.size()};
  work_kind_ = GSEL_WORK_INPUT;
  handed_out_ = true;
  ++ticket_;
}

void Executor::hand_out_layer(const gsel_instr& instr) {
  const Layer& layer = layer_of(instr);
  const Microbatch& mb = program_.microbatches[instr.microbatch];
  t_params_.clear();
  t_inputs_.clear();
  t_outputs_.clear();
  t_d_outputs_.clear();
  t_d_inputs_.clear();
  t_d_params_.clear();
  added_inputs_.clear();
  for (int32_t p : layer.params) t_params_.push_back(param_tensor(model_.params()[p], params_.param(p)));
  for (int32_t v : layer.inputs) t_inputs_.push_back(value_view(v, instr.microbatch, plan_.value(v, instr.microbatch)));
  for (int32_t v : layer.outputs)
    t_outputs_.push_back(value_view(v, instr.microbatch, plan_.value(v, instr.microbatch)));
  call_ = {};
  if (instr.kind != GSEL_INSTR_FORWARD) prepare_gradients(instr, layer);

  sample_ids_.resize(mb.count);
  std::iota(sample_ids_.begin(), sample_ids_.end(), step_ * config_.train.batch + mb.first);
  call_.struct_size = sizeof call_;
  call_.layer = instr.layer;
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
  call_.saved = value_at(plan_.saved(instr.layer, instr.microbatch));
  call_.saved_bytes = saved_bytes(layer, mb.count);
  call_.rng_key =
      derive_key(derive_key(static_cast<uint64_t>(config_.train.seed), static_cast<uint64_t>(step_)), layer.name);
  message_[0] = '\0';
  call_.message = message_.data();
  call_.message_capacity = message_.size();
  call_.user_data = layer.user_data;
  work_kind_ = work_kind(instr.kind);
  handed_out_ = true;
  ++ticket_;
}

void Executor::prepare_gradients(const gsel_instr& instr, const Layer& layer) {
  const int32_t mb = instr.microbatch;
  for (int32_t v : layer.outputs) t_d_outputs_.push_back(value_view(v, mb, plan_.gradient(v, mb)));
  const bool input_half = instr.kind != GSEL_INSTR_BACKWARD_WEIGHT;
  for (size_t i = 0; i < layer.inputs.size(); ++i) {
    const int32_t v = layer.inputs[i];
    uint64_t offset = ValuePlan::kNone;
    if (input_half && model_.values()[v].needs_gradient) {
      const bool later = gradient_begun_[static_cast<size_t>(mb) * model_.values().size() + v];
      offset = later ? plan_.scratch(v, mb) : plan_.gradient(v, mb);
      if (later) added_inputs_.push_back(v);
    }
    t_d_inputs_.push_back(value_view(v, mb, offset));
  }
  if (instr.kind != GSEL_INSTR_BACKWARD_INPUT) prepare_weight_gradients(layer);
}

// All parameters of a layer share one `accumulate`; where a tied one already has a gradient, the others start at zero.
void Executor::prepare_weight_gradients(const Layer& layer) {
  auto begun = [&](int32_t p) { return model_.params()[p].trainable() && weight_begun_[p]; };
  call_.accumulate = std::ranges::any_of(layer.params, begun);
  for (int32_t p : layer.params) {
    const Param& param = model_.params()[p];
    t_d_params_.push_back(param_tensor(param, params_.gradient(p)));
    if (!param.trainable()) continue;
    if (call_.accumulate && !weight_begun_[p])
      backend_->run(&gsel_backend_v1::zero, static_cast<void*>(params_.gradient(p)),
                    uint64_t{sizeof(float)} * param.n_elems, static_cast<gsel_stream*>(nullptr));
    weight_begun_[p] = true;
  }
}

void Executor::finish_layer(const gsel_instr& instr) {
  const Layer& layer = layer_of(instr);
  const int32_t mb = instr.microbatch;
  if (instr.kind == GSEL_INSTR_FORWARD) {
    if (layer.is_loss()) collect_loss(instr);
    return;
  }
  for (int32_t v : added_inputs_) {
    const Value& value = model_.values()[v];
    backend_->run(&gsel_backend_v1::add, value_at(plan_.gradient(v, mb)),
                  static_cast<const void*>(value_at(plan_.scratch(v, mb))), value.dtype,
                  static_cast<uint64_t>(value_elems(value, program_.microbatches[mb].count)),
                  static_cast<gsel_stream*>(nullptr));
  }
  if (instr.kind != GSEL_INSTR_BACKWARD_WEIGHT)
    for (int32_t v : layer.inputs) gradient_begun_[static_cast<size_t>(mb) * model_.values().size() + v] = true;
  if (static_cast<int32_t>(position_) == last_backward_) backward_done_.record(nullptr);
}

void Executor::collect_loss(const gsel_instr& instr) {
  double parts[2];
  for (int i = 0; i < 2; ++i) {
    const uint64_t offset = plan_.value(layer_of(instr).outputs[i], instr.microbatch);
    backend_->run(&gsel_backend_v1::copy, static_cast<void*>(&parts[i]), static_cast<const void*>(value_at(offset)),
                  uint64_t{sizeof(double)}, int32_t{GSEL_COPY_TO_HOST}, static_cast<gsel_stream*>(nullptr));
  }
  loss_sum_ += parts[0];
  weight_ += parts[1];
}

}  // namespace gsel
