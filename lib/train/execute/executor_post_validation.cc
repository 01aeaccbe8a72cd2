// train/execute/executor_post_validation.cc: steps that are made before it is known whether they may be. An optimistic
// NORM or OVERFLOW gives this place's number away; STEP goes on as if nothing were clipped and nothing had overflowed,
// after what it changes was kept. VALIDATE in the next step, or whoever asks between steps, takes the number, which is
// the same on all ranks: so all go on, or all put back what was kept, step again as they should have, and begin the
// next step again. Before VALIDATE no gradient is written and no loss told, and at it no message is under way:
// docs/program.md has the rules. Source: Qi et al., "Zero Bubble Pipeline Parallelism", ICLR 2024, section 4.
#include <cmath>

#include "base/current_error.h"
#include "base/os.h"
#include "program/verify/post_validation.h"
#include "train/execute/executor.h"

namespace gsel {

// ---- the step that is to be validated -------------------------------------------------------------------------

// Each at the end of the memory for numbers.
void* Executor::memory_of_optimistic(bool is_norm) const {
  return staging_.at(staging_.bytes() - (is_norm ? 1 : 2) * sizeof(double));
}

// A communicator that has no thread of its own makes the call where it stands, which costs what deferring gains.
void Executor::go_on_without(const gsel_instr& instr, double number) {
  const bool is_norm = instr.kind == GSEL_INSTR_NORM;
  OptimisticNumber& optimistic = is_norm ? validation_.squares : validation_.overflow;
  validation_.is_open = optimistic.is_open = true;
  validation_.weight = weight_;
  validation_.origin = origin_;
  optimistic.value = number;
  if (axis_size(GSEL_AXIS_PIPELINE) == 1) return;
  void* place = memory_of_optimistic(is_norm);
  backend_->run(&gsel_backend_v1::copy, place, static_cast<const void*>(&number), uint64_t{sizeof number},
                int32_t{GSEL_COPY_TO_DEVICE}, static_cast<gsel_stream*>(nullptr));
  optimistic.under_way.emplace(comms_.validation(), make_collective(GSEL_COLLECTIVE_ALLREDUCE, place, place, 1,
                                                                    GSEL_F64, is_norm ? GSEL_SUM : GSEL_MAX));
  try {
    optimistic.under_way->start();
  } catch (const Error& error) {
    if (error.code() != GSEL_ERR_UNSUPPORTED) throw;
    optimistic.under_way->run();
  }
}

void Executor::keep_until_validated(int32_t bucket, const Stretch& stretch) {
  if (validation_.is_open) step_copy_->keep(bucket, stretch);
}

// Of a step that defers nothing, its own numbers.
void Executor::report_validated(gsel_step_report& report) const {
  if (run_plan_->last_optimistic < 0) {
    report.skipped = overflowed_;
    report.validated_step = report.step;
    return;
  }
  report.validated_step = validation_.step;
  report.gradient_norm = validation_.gradient_norm;
  report.skipped = validation_.overflowed;
}

// ---- what becomes of it ---------------------------------------------------------------------------------------

// At its position. False: the step before was not what it should have been, and this one has begun again.
bool Executor::post_validate() {
  const bool stands = settle_validation();
  now_.report.loss_scale = loss_scale_.value();
  now_.report.learning_rate = optimizer_.learning_rate(updates_);
  if (stands) {
    messages_.passed_validate();
    return true;
  }
  ++now_.report.restarts;
  begin_first_instr();
  return false;
}

void Executor::settle_last_step() {
  if (!validation_.is_open || under_way_ || broken_) return;
  try {
    forget_counts();
    settle_validation();
    keep_counts();
  } catch (...) {
    break_off(current_error());
  }
  report_validated(last_step_.report);
  report_non_finite(last_step_.report);
}

// Whether the open step stands as it was made; where it does not it is made again.
bool Executor::settle_validation() {
  if (!validation_.is_open) return true;
  const double began = os::now_seconds();
  const int32_t n = validation_.squares.under_way.has_value() + validation_.overflow.under_way.has_value();
  take_optimistic(validation_.overflow);
  take_optimistic(validation_.squares);
  if (n > 0) count_optimistic(n);
  note_exposed(GSEL_AXIS_PIPELINE, os::now_seconds() - began);

  const bool has_norm = std::exchange(validation_.squares.is_open, false);
  const bool found = std::exchange(validation_.overflow.is_open, false) && validation_.overflow.value != 0;
  const bool overflowed = found || (has_norm && tells_overflow(validation_.squares.value));
  validation_.is_open = false;
  validation_.step = step_ - 1;
  validation_.overflowed = overflowed;
  validation_.gradient_norm =
      has_norm ? std::sqrt(validation_.squares.value) / (validation_.weight * loss_scale_.value()) : 0;
  const double clip = has_norm ? clip_of(validation_.gradient_norm) : 1;
  const bool stands = clip == 1 && !overflowed;
  if (!stands) {
    close_forward();
    step_again(clip, overflowed);
  }
  step_copy_->drop();
  end_update(overflowed, validation_.step, validation_.origin);
  return stands;
}

void Executor::take_optimistic(OptimisticNumber& number) {
  if (!number.under_way) return;
  number.under_way->wait();
  number.under_way.reset();
  const bool is_norm = &number == &validation_.squares;
  backend_->run(&gsel_backend_v1::copy, static_cast<void*>(&number.value), memory_of_optimistic(is_norm),
                uint64_t{sizeof number.value}, int32_t{GSEL_COPY_TO_HOST}, static_cast<gsel_stream*>(nullptr));
}

// Calls of one size each, made since the last ones were counted.
void Executor::count_optimistic(int32_t n) {
  const gsel_comm_count all = comms_.validation().counts(GSEL_COLLECTIVE_ALLREDUCE);
  const gsel_comm_count seen = std::exchange(validation_.counted, all);
  for (const auto& [kind, number] :
       {std::pair{GSEL_INSTR_NORM, &validation_.squares}, std::pair{GSEL_INSTR_OVERFLOW, &validation_.overflow}}) {
    if (!number->is_open) continue;
    gsel_comm_count& count = counts_now_[GSEL_AXIS_PIPELINE][kind];
    count.calls += (all.calls - seen.calls) / static_cast<uint64_t>(n);
    count.bytes_sent += (all.bytes_sent - seen.bytes_sent) / static_cast<uint64_t>(n);
  }
}

// What the forwards of a step that begins again have left: collectives under way, gathered parameters, and messages
// that others take before their own VALIDATE.
void Executor::close_forward() {
  if (!under_way_) return;
  for (int32_t b = 0; b < static_cast<int32_t>(buckets_.size()); ++b) {
    wait_bucket(b);
    release_params(b);
  }
  settle_messages();
}

// The instructions behind the optimistic ones, with what they optimistic. Gradients are complete since the first time.
void Executor::step_again(double clip, bool overflowed) {
  for (int32_t b = 0; b < static_cast<int32_t>(buckets_.size()); ++b) {
    if (!step_copy_->keeps(b)) continue;
    step_copy_->put_back(b, params_.stretch(b));
    params_.done_with(b, true);
  }
  weight_begun_.assign(weight_begun_.size(), true);
  weight_ = validation_.weight;
  clip_ = clip;
  overflowed_ = overflowed;
  --step_;
  const std::vector<gsel_instr>& step = program().step;
  for (position_ = static_cast<size_t>(run_plan_->last_optimistic) + 1; position_ < step.size(); ++position_)
    if (const gsel_instr_kind kind = step[position_].kind;
        kind == GSEL_INSTR_STEP || kind == GSEL_INSTR_ALLGATHER || kind == GSEL_INSTR_WAIT)
      run_instr(step[position_]);
  ++step_;
}

}  // namespace gsel
