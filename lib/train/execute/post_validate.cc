// train/execute/post_validate.cc: optimistic steps. An optimistic NORM or OVERFLOW sends this rank's number; STEP
// copies what it changes and goes on as if nothing were clipped and nothing had overflowed. POST_VALIDATE in the next
// step, or a call between steps, takes the reduced number. It is the same on all ranks: either all go on, or all
// restore the copy, repeat the step with the true numbers, and start the next step over. Before POST_VALIDATE no
// gradient is written and no loss sent, and no message crosses it: docs/program.md has the rules. Source: Qi et al.,
// "Zero Bubble Pipeline Parallelism", ICLR 2024, section 4.
#include <cmath>

#include "base/os.h"
#include "train/execute/instructions.h"

namespace gsel::execute {
namespace {

void take_optimistic(OptimisticNumber& number) {
  if (!number.under_way) return;
  number.under_way->wait();
  number.under_way.reset();
}

// Counts the n calls made since the last count; all have the same size.
void count_optimistic(Communication& c, int32_t n) {
  const gsel_comm_count all = c.comms.validation().counts(GSEL_COLLECTIVE_ALLREDUCE);
  const gsel_comm_count seen = std::exchange(c.validation.counted, all);
  for (const auto& [kind, number] :
       {std::pair{GSEL_INSTR_NORM, &c.validation.squares}, std::pair{GSEL_INSTR_OVERFLOW, &c.validation.overflow}}) {
    if (!number->is_open) continue;
    gsel_comm_count each = difference(all, seen);
    each.calls /= static_cast<uint64_t>(n);
    each.bytes_sent /= static_cast<uint64_t>(n);
    c.counts.add(GSEL_AXIS_PIPELINE, kind, each);
  }
}

// Ends what the forwards of a step that starts over have begun: collectives, gathered parameters, and messages that
// other ranks take before their own POST_VALIDATE.
void close_forward(State& s) {
  if (!s.under_way) return;
  for (int32_t b = 0; b < static_cast<int32_t>(s.buckets.size()); ++b) {
    wait_bucket(s, b);
    close_param_window(s, s.lent.lender, b);
  }
  settle_messages(s);
}

// Repeats the instructions after the optimistic ones, with the true numbers. Gradients are still complete.
void step_again(State& s, double clip, bool overflowed) {
  for (int32_t b = 0; b < static_cast<int32_t>(s.buckets.size()); ++b) {
    if (!s.step_copy->keeps(b)) continue;
    s.step_copy->put_back(b, s.params.shard(b));
    s.params.done_with(b, true);
  }
  s.run->weight_begun.assign(s.run->weight_begun.size(), true);
  s.run->weight = s.validation.weight;
  s.run->clip = clip;
  s.run->overflowed = overflowed;
  --s.step;
  const std::vector<gsel_instr>& step = s.program().step;
  for (s.run->position = static_cast<size_t>(s.run->last_optimistic) + 1; s.run->position < step.size();
       ++s.run->position)
    if (instr_row(step[s.run->position].kind).repeats) run_instr(s, step[s.run->position]);
  ++s.step;
}

}  // namespace

// ---- the optimistic step --------------------------------------------------------------------------------------

// A communicator without a thread of its own makes the call blocking, which loses the gain of an optimistic step.
void start_optimistic(State& s, const gsel_instr& instr, double number) {
  const bool is_norm = instr_row(instr.kind).peers == InstrPeers::norm;
  OptimisticNumber& optimistic = is_norm ? s.validation.squares : s.validation.overflow;
  s.validation.is_open = optimistic.is_open = true;
  s.validation.weight = s.run->weight;
  s.validation.origin = s.run->origin;
  optimistic.value = number;
  if (s.axis_size(GSEL_AXIS_PIPELINE) == 1) return;
  gsel_collective call = make_collective(GSEL_COLLECTIVE_ALLREDUCE, &optimistic.value, &optimistic.value, 1, GSEL_F64,
                                         is_norm ? GSEL_SUM : GSEL_MAX);
  optimistic.under_way.emplace(s.comms.validation(), call);
  try {
    optimistic.under_way->start();
  } catch (const Error& error) {
    if (error.code() != GSEL_ERR_UNSUPPORTED) throw;
    s.comms.validation().collective(call);
  }
}

// A step without optimistic instructions reports its own numbers.
void report_validated(const Run& run, const Validation& validation, gsel_step_report& report) {
  if (run.last_optimistic < 0) {
    report.skipped = run.overflowed;
    report.validated_step = report.step;
    return;
  }
  report.validated_step = validation.step;
  report.gradient_norm = validation.gradient_norm;
  report.skipped = validation.overflowed;
}

// ---- validation -----------------------------------------------------------------------------------------------

bool post_validate(State& s) {
  const bool valid = settle_validation(s);
  s.run->record.report.loss_scale = s.loss_scale.value();
  s.run->record.report.learning_rate = s.optimizer.learning_rate(s.updates);
  if (valid) {
    s.messages->passed_post_validate();
    return true;
  }
  ++s.run->record.report.restarts;
  begin_first_instr(s);
  return false;
}

bool settle_validation(State& s) {
  if (!s.validation.is_open) return true;
  const double began = os::now_seconds();
  const int32_t n = s.validation.squares.under_way.has_value() + s.validation.overflow.under_way.has_value();
  take_optimistic(s.validation.overflow);
  take_optimistic(s.validation.squares);
  if (n > 0) count_optimistic(s, n);
  note_exposed(s, GSEL_AXIS_PIPELINE, os::now_seconds() - began);

  const bool has_norm = std::exchange(s.validation.squares.is_open, false);
  const bool found = std::exchange(s.validation.overflow.is_open, false) && s.validation.overflow.value != 0;
  const bool overflowed = found || (has_norm && shows_overflow(s, s.validation.squares.value));
  s.validation.is_open = false;
  s.validation.step = s.step - 1;
  s.validation.overflowed = overflowed;
  s.validation.gradient_norm =
      has_norm ? std::sqrt(s.validation.squares.value) / (s.validation.weight * s.loss_scale.value()) : 0;
  const double clip = has_norm ? clip_of(s, s.validation.gradient_norm) : 1;
  const bool valid = clip == 1 && !overflowed;
  if (!valid) {
    s.is_mixture = true;  // if it ends in the middle
    close_forward(s);
    step_again(s, clip, overflowed);
    s.is_mixture = false;
  }
  s.step_copy->drop();
  end_update(s, overflowed, s.validation.step, s.validation.origin);
  return valid;
}

}  // namespace gsel::execute
