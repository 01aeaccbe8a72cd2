// train/execute/executor.cc: the step: going through the program from instruction to instruction. See executor.h for
// the rest.
#include "train/execute/executor.h"

#include <algorithm>

#include "base/current_error.h"
#include "base/foreign.h"
#include "base/os.h"
#include "program/forward_only.h"
#include "program/redistribution.h"

namespace gsel {
namespace {

const char* callback_word(int32_t kind) {
  static const char* const words[] = {"", "input", "forward", "backward_input", "backward_weight", "backward"};
  return words[kind];
}

}  // namespace

// ---- driving --------------------------------------------------------------------------------------------------

gsel_work Executor::next() {
  if (broken_) fail(GSEL_ERR_STATE, "an earlier step failed; free the trainer");
  if (handed_out_)
    fail(GSEL_ERR_STATE, "work {} is handed out and not complete; call gsel_trainer_complete first", ticket_);
  try {
    if (!under_way_) begin(training_, step_ * config_.train.batch);
    while (position_ < program().step.size()) {
      if (phase_ == 0) instr_began_ = os::now_seconds();
      if (program().step[position_].kind == GSEL_INSTR_POST_VALIDATE && !post_validate()) continue;
      if (run_instr(program().step[position_])) break;
      end_instr();
    }
    if (!handed_out_) finish();
  } catch (...) {
    break_off(current_error());
  }
  if (!handed_out_) conclude();
  gsel_work work{};
  work.kind = handed_out_ ? work_kind_ : GSEL_WORK_DONE;
  work.ticket = handed_out_ ? ticket_ : 0;
  if (handed_out_) (work_kind_ == GSEL_INPUT ? (void)(work.input = &request_) : (void)(work.call = &call_));
  work_began_ = os::now_seconds();
  return work;
}

void Executor::complete(uint64_t ticket, gsel_status status, std::string_view message) {
  if (!handed_out_ || ticket != ticket_)
    fail(GSEL_ERR_STATE, "work {} is said to be complete; {}", ticket,
         handed_out_ ? fmt::format("work {} is handed out", ticket_) : "none is handed out");
  now_.report.compute_s += os::now_seconds() - work_began_;
  handed_out_ = false;
  const gsel_instr& instr = program().step[position_];
  const bool no_samples = work_kind_ == GSEL_INPUT && status == GSEL_NO_SAMPLES;
  if (status != GSEL_OK && inference_)
    keep_failure(status, message);
  else if (status != GSEL_OK && !no_samples)
    fail_callback(status, message);
  try {
    if (work_kind_ == GSEL_INPUT)
      take_back_input(instr, no_samples && !inference_);
    else
      take_back_layer(instr);
  } catch (...) {
    break_off(current_error());
  }
  if (phase_ == 0) end_instr();
}

void Executor::begin_evaluation(int64_t first_sample) {
  if (broken_) fail(GSEL_ERR_STATE, "an earlier step failed; free the trainer");
  if (first_sample < 0) fail(GSEL_ERR_ARG, "first_sample is {}; samples count from 0", first_sample);
  settle_last_step();
  if (!evaluation_) {
    forward_program_ = std::make_unique<Program>(forward_only(training_.program));
    evaluation_ = std::make_unique<RunPlan>(model_, *forward_program_, params_);
  }
  // Between steps nothing lives in the arena.
  if (evaluation_->plan.bytes() > arena_.bytes()) {
    arena_ = {};
    arena_ = CountedMemory(backend_, ledger_, Part::windows, evaluation_->plan.bytes());
  }
  begin(*evaluation_, first_sample);
}

// The library's own layers are communication, drawn apart from callbacks.
void Executor::end_instr() {
  const gsel_instr& instr = program().step[position_];
  const bool redistributes = instr.layer >= 0 && layer_of(instr).redistributes &&
                             communicates(redistribution_of(program(), program().layers[instr.layer], instr.kind));
  now_.intervals.push_back({position_, instr_began_ - began_, os::now_seconds() - began_, redistributes});
  ++position_;
}

// ---- failures -------------------------------------------------------------------------------------------------

// Other ranks would wait for this one until their timeout; abort tells them why at once, and ends this rank's own
// calls.
void Executor::end_all(std::string_view reason) noexcept {
  broken_ = true;
  under_way_ = handed_out_ = false;
  comms_.abort(reason);
  messages_.drop();
  validation_.squares.under_way.reset();
  validation_.overflow.under_way.reset();
  try {
    if (comm_stream_) backend_->run(&gsel_backend_v1::stream_wait, comm_stream_->get());
  } catch (...) {  // why its calls failed is known
  }
}

// No step can follow a failed one: ranks may differ in what they have applied. Who hears of it from a neighbour tells
// the first reason.
void Executor::break_off(const Error& error) {
  end_all(error.message());
  if (error.code() == GSEL_ERR_ABORTED)
    if (const std::optional<Error> first = comms_.what_ended_all()) throw Error(*first);
  throw Error(error);
}

void Executor::write_message(std::string_view text) {
  message_[text.copy(message_.data(), message_.size() - 1)] = '\0';
}

std::string Executor::where_in_step() const {
  return fmt::format("on rank {}, {} {}", comms_.world().rank(), evaluating_ ? "evaluation before step" : "step",
                     step_);
}

void Executor::fail_callback(gsel_status status, std::string_view message) {
  const gsel_instr& instr = program().step[position_];
  const std::string what = work_kind_ == GSEL_INPUT ? fmt::format("input \"{}\"", model_.values()[instr.value].name)
                                                    : fmt::format("layer \"{}\"", layer_of(instr).name);
  const std::string phase = phase_ ? fmt::format(" phase {}", phase_) : "";
  const std::string text = fmt::format("{} failed in {}{} {}, micro-batch {}: {}", what, callback_word(work_kind_),
                                       phase, where_in_step(), instr.microbatch, reason_of(status, message));
  break_off(Error(GSEL_ERR_CALLBACK, text).about_rank(comms_.world().rank()));
}

// ---- the step -------------------------------------------------------------------------------------------------

void Executor::begin(const RunPlan& run_plan, int64_t first_sample) {
  run_plan_ = &run_plan;
  evaluating_ = run_plan_ != &training_;
  under_way_ = true;
  first_sample_ = first_sample;
  now_.report = {};
  now_.report.struct_size = sizeof now_.report;
  now_.report.step = step_;
  report_non_finite(now_.report);
  now_.report.loss_scale = loss_scale_.value();
  now_.report.learning_rate = optimizer_.learning_rate(updates_);
  offload_in_before_ = offload_bytes_in();
  offload_out_before_ = offload_bytes_out();
  forget_counts();
  began_ = os::now_seconds();
  now_.began_ns = os::now_ns();
  began_event_.record(nullptr);
  begin_first_instr();
}

// Of a step, or of one that is begun again.
void Executor::begin_first_instr() {
  position_ = phase_ = 0;
  loss_sum_ = weight_ = 0;
  clip_ = 1;
  overflowed_ = false;
  origin_ = {};
  for (size_t m = 0; m < program().microbatches.size(); ++m) empty_[m] = program().microbatches[m].count == 0;
  std::ranges::fill(losses_, std::array<double, 2>{});
  if (!evaluating_) {
    weight_begun_.assign(weight_begun_.size(), false);
    used_.assign(used_.size(), false);
  }
  now_.exposed_s = {};
  now_.intervals.clear();
  begin_messages();
}

void Executor::finish() {
  settle_messages();
  under_way_ = false;
  gsel_step_report& report = now_.report;
  report.loss_sum = loss_sum_;
  report.weight = weight_;
  report.loss = weight_ > 0 ? loss_sum_ / weight_ : 0;
  report_validated(report);
  report.peak_bytes = ledger_.peak_total();
  report.offload_bytes_in = offload_bytes_in() - offload_in_before_;
  report.offload_bytes_out = offload_bytes_out() - offload_out_before_;
  keep_counts();
  report.seconds = os::now_seconds() - began_;
  now_.forecast = forecast_;
  now_.peak = ledger_.peak();
  if (inference_) return;
  if (evaluating_) {
    if (weight_ > 0) last_evaluation_ = report;
    return;
  }
  if (!validation_.is_open) end_update(overflowed_, step_, origin_);
  report_non_finite(now_.report);
  ++step_;
  std::swap(last_step_, now_);
  has_step_ = true;
}

// Behind a step or an evaluation that has ended as it should on every rank: what fails here breaks nothing.
void Executor::conclude() {
  if (inference_) return;
  if (evaluating_ && run_plan_->last_loss_reduce >= 0 && !(weight_ > 0)) refuse_weight();
  if (!evaluating_ && !config_.train.timeline.empty()) write_timeline(config_.train.timeline, program(), last_step_);
}

// The outcome of a step is known.
void Executor::end_update(bool overflowed, int64_t step, const NonFiniteOrigin& origin) {
  non_finite_origin_ = {};
  if (overflowed) {
    tell_non_finite(origin);
    judge_non_finite(step);
  }
  loss_scale_.update(overflowed);
  updates_ += !overflowed;
  for (BucketState& bucket : buckets_)
    if (bucket.compressor) bucket.compressor->end_step(!overflowed);
}

uint64_t Executor::offload_bytes_in() const {
  return params_.offload_bytes_in() + (step_copy_ ? step_copy_->offload_bytes_in() : 0);
}
uint64_t Executor::offload_bytes_out() const {
  return params_.offload_bytes_out() + (step_copy_ ? step_copy_->offload_bytes_out() : 0);
}

bool Executor::run_instr(const gsel_instr& instr) {
  switch (instr.kind) {
    case GSEL_INPUT:
      return hand_out_input(instr);
    case GSEL_FORWARD:
    case GSEL_INSTR_RECOMPUTE:
    case GSEL_BACKWARD_INPUT:
    case GSEL_BACKWARD_WEIGHT:
    case GSEL_BACKWARD:
      return hand_out_layer(instr);
    case GSEL_INSTR_SCATTER:
    case GSEL_INSTR_GATHER:
      exchange_parts(instr);
      return false;
    case GSEL_INSTR_SEND:
      send(instr);
      return false;
    case GSEL_INSTR_RECV:
      receive(instr);
      return false;
    case GSEL_INSTR_BROADCAST:
      broadcast_params(instr);
      return false;
    case GSEL_INSTR_ALLGATHER:
      gather_params(instr);
      return false;
    case GSEL_INSTR_RELEASE:
      release_params(instr.bucket);
      return false;
    case GSEL_INSTR_ALLREDUCE:
      reduce_gradients(instr);
      return false;
    case GSEL_INSTR_REDUCE:
      reduce_to_root(instr);
      return false;
    case GSEL_INSTR_REDUCE_SCATTER:
      scatter_gradients(instr);
      return false;
    case GSEL_INSTR_WAIT:
      wait_bucket(instr.bucket);
      return false;
    case GSEL_INSTR_LOSS_ALLREDUCE:
      loss_allreduce(instr);
      return false;
    case GSEL_INSTR_OVERFLOW:
      find_overflow(instr);
      return false;
    case GSEL_INSTR_NORM:
      norm(instr);
      return false;
    case GSEL_INSTR_ALLREDUCE_PARTIAL:
      allreduce_partial(instr);
      return false;
    case GSEL_INSTR_ALLREDUCE_TIED:
      allreduce_tied(instr);
      return false;
    case GSEL_INSTR_STEP:
      step_bucket(instr);
      return false;
    case GSEL_INSTR_POST_VALIDATE:
      return false;  // next() has done it
    default:
      fail(GSEL_ERR_INTERNAL, "instruction \"{}\" reached the executor", to_text(program(), instr));
  }
}

}  // namespace gsel
