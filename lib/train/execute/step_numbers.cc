// train/execute/step_numbers.cc: see step_numbers.h.
#include "train/execute/step_numbers.h"

#include <algorithm>
#include <cmath>

#include "base/os.h"
#include "comm/call/collective.h"
#include "program/optimistic.h"
#include "train/execute/graphs.h"
#include "train/execute/instructions.h"
#include "train/ranks/agree.h"

namespace gsel::execute {
namespace {

bool is_message(const gsel_instr& instr) {
  return task_of(instr.kind) == InstrTask::message;
}

bool passes_losses(const gsel_instr& instr) {
  return task_of(instr.kind) == InstrTask::loss && instr.axis == GSEL_AXIS_PIPELINE;
}

// A device may run its calls in the order of launches, so a rank must not launch the end of a step before messages that
// another rank of the pipeline needs to come to its own.
bool ends_after_messages(const Program& program) {
  auto is_end = [](const gsel_instr& instr) { return is_of_tail(instr) && !passes_losses(instr); };
  return std::none_of(std::ranges::find_if(program.step, is_end), program.step.end(), is_message);
}

// train.elastic has the host wait for all gradients before an update.
bool is_possible(const Fixed& fixed, const Program& program) {
  return fixed.device->compute() && fixed.device->table().sum_numbers && fixed.optimizer.has_graphs(*fixed.device) &&
         !fixed.config.train.elastic && ends_after_messages(program) && !has_optimistic_steps(program);
}

bool is_norm(const gsel_instr& instr) {
  return instr_row(instr.kind).peers == InstrPeers::norm;
}

}  // namespace

StepNumbers::StepNumbers(const Fixed& fixed, const HeldMemory& memory, const Program& program, bool graphs_have_them)
    : device_(fixed.device),
      program_(program),
      end_word_(fixed.watch->end_word()),
      is_on_(!graphs_have_them && is_possible(fixed, program)) {
  for (const gsel_instr& instr : program.step)
    if (task_of(instr.kind) == InstrTask::check) checks_.push_back(instr);
  groups_.resize(checks_.size());
  if (is_on_) make_memory(memory);
}

void StepNumbers::make_memory(const HeldMemory& memory) {
  uint64_t calls = 0;
  for (size_t b = 0; b < program_.buckets.size(); ++b)
    calls += Optimizer::most_calls(memory.params.layout(static_cast<int32_t>(b)).runs.size());
  numbers_at_ = calls * GSEL_STEP_FACTOR_BYTES;
  const uint64_t lists_at = numbers_at_ + (n_numbers() + 4) * sizeof(double);
  const uint64_t n_ends = checks_.size() * (1 + program_.buckets.size());
  on_device_ = Memory(device_, numbers_at_ + (n_numbers() + kAxes + 4) * sizeof(double));
  on_host_ = Memory(device_, lists_at + 2 * sizeof(double*) + n_ends * sizeof(int32_t), GSEL_MEMORY_PINNED);
  std::fill_n(reinterpret_cast<double*>(on_host_.at(numbers_at_)) + n_numbers(), 4, std::nan(""));
  weight_ = reinterpret_cast<const double**>(on_host_.at(lists_at));
  weight_[0] = read(1);
  weight_[1] = end_word_;
  next_end_ = reinterpret_cast<int32_t*>(weight_ + 2);
  ends_of_checks_ = next_end_;
  for (size_t i = 0; i < checks_.size(); ++i) *next_end_++ = static_cast<int32_t>(i) + 1;
}

void StepNumbers::agree(const Fixed& fixed, Communicator& comm) {
  if (fixed.device->compute()) is_on_ = all_succeed(comm, is_on_);
}

// The device has ended the run before.
void StepNumbers::begin(State& s) {
  if (!is_of(s)) return;
  n_checks_ = 0;
  has_losses_ = owes_losses_ = is_fetched_ = false;
  next_factors_ = nullptr;
  reinterpret_cast<double*>(on_host_.at(numbers_at_))[n_numbers()] = 0;
  char *const first = on_host_.at(0), *end = first;
  for (const gsel_instr& instr : program_.step)
    if (task_of(instr.kind) == InstrTask::step && s.params.layout(instr.bucket).steps)
      end = s.optimizer.write_factors(*device_, s.params.addresses(instr.bucket), s.updates, end);
  if (end != first)
    device_->enqueue(&gsel_device_v1::copy, on_device_.data(), static_cast<const void*>(first),
                     static_cast<uint64_t>(end - first), int32_t{GSEL_COPY_TO_DEVICE});
}

bool StepNumbers::takes(State& s, const gsel_instr& instr) {
  if (!is_of(s)) return false;
  switch (task_of(instr.kind)) {
    case InstrTask::loss:
      loss(s, instr);
      return true;
    case InstrTask::check:
      check(s, instr);
      return true;
    case InstrTask::step:
      step(s, instr);
      return true;
    default:
      return false;
  }
}

// ---- on the device --------------------------------------------------------------------------------------------------

void StepNumbers::add(double* to, const double* number) const {
  device_->enqueue(&gsel_device_v1::add, static_cast<void*>(to), static_cast<const void*>(number), gsel_dtype{GSEL_F64},
                   uint64_t{1});
}

void StepNumbers::sum_over(State& s, gsel_instr_kind poster, gsel_axis axis, double* number) const {
  call_now(s, poster, axis, make_collective(GSEL_COLLECTIVE_ALLREDUCE, number, number, 1, GSEL_F64, GSEL_SUM));
}

// Loss and weight of a micro-batch are two consecutive numbers.
void StepNumbers::sum_losses(State& s) {
  if (std::exchange(has_losses_, true)) return;
  device_->enqueue(&gsel_device_v1::zero, static_cast<void*>(number(0)), 2 * sizeof(double));
  for (const int64_t first : s.run->fetched)
    if (first >= 0)
      device_->enqueue(&gsel_device_v1::add, static_cast<void*>(number(0)),
                       static_cast<const void*>(s.numbers.at(static_cast<size_t>(first))), gsel_dtype{GSEL_F64},
                       uint64_t{2});
}

// If the call that gives all ranks' losses does not end, because a rank has died, there is no scale and no update.
void StepNumbers::forget_losses() const {
  device_->enqueue(&gsel_device_v1::copy, static_cast<void*>(number(0)),
                   static_cast<const void*>(read(n_numbers() + 2)), 2 * sizeof(double), int32_t{GSEL_COPY_TO_DEVICE});
}

// The rank that has the losses comes to this instruction before its last messages, and the others behind theirs, so all
// ranks put it off to the end of the step.
void StepNumbers::pass_losses_on(State& s) {
  if (!std::exchange(owes_losses_, false)) return;
  settle_messages(s);
  sum_losses(s);
  pass_losses(s, [&](gsel_collective_kind kind, int32_t peer) {
    const bool sends = kind == GSEL_COLLECTIVE_SEND;
    if (!sends) forget_losses();
    message_now(s, GSEL_INSTR_LOSS_ALLREDUCE,
                make_collective(kind, sends ? number(0) : nullptr, sends ? nullptr : number(0), 2, GSEL_F64, 0, peer));
  });
}

void StepNumbers::loss(State& s, const gsel_instr& instr) {
  owes_losses_ = owes_losses_ || passes_losses(instr);
  if (passes_losses(instr)) return;
  if (instr.axis == GSEL_AXIS_DATA) settle_messages(s);
  pass_losses_on(s);
  sum_losses(s);
  if (s.axis_size(instr.axis) == 1) return;
  double* const own = number(n_numbers() + kAxes + 2);
  device_->enqueue(&gsel_device_v1::copy, static_cast<void*>(own), static_cast<const void*>(number(0)),
                   2 * sizeof(double), int32_t{GSEL_COPY_ON_DEVICE});
  forget_losses();
  call_now(s, instr.kind, instr.axis,
           make_collective(GSEL_COLLECTIVE_ALLREDUCE, own, number(0), 2, GSEL_F64, GSEL_SUM));
}

std::vector<StepNumbers::Group> StepNumbers::groups_of(const State& s, size_t first) {
  std::vector<Group> groups;
  size_t at = 0;
  for (gsel_axis axis = -1; axis < kAxes; ++axis) {
    Group group{axis, at, next_end_, 0};
    for (size_t b = 0; b < s.buckets.size(); ++b) {
      if (divided_axis(s, static_cast<int32_t>(b)) != axis) continue;
      for (const auto& [bucket, index] : s.squares.of_runs)
        if (bucket == b) at = index + 1 - first;
      *next_end_++ = static_cast<int32_t>(at - group.first);
      ++group.n_ends;
    }
    if (axis < 0 || group.n_ends > 0) groups.push_back(group);
  }
  return groups;
}

// A sum of squares is finite if and only if all gradients are, so OVERFLOW is a sum as well.
void StepNumbers::check(State& s, const gsel_instr& instr) {
  pass_losses_on(s);
  const size_t first = s.numbers.count();
  enqueue_squares(s, instr);
  std::vector<Group>& groups = groups_[n_checks_];
  if (groups.empty()) groups = groups_of(s, first);
  double* const sum = number(2 + n_checks_);
  for (const Group& group : groups) {
    double* const of_group = group.axis < 0 ? sum : number(n_numbers() + static_cast<size_t>(group.axis));
    device_->enqueue(&gsel_device_v1::sum_numbers, s.numbers.at(first + group.first), group.ends, group.n_ends,
                     of_group);
    if (group.axis < 0) continue;
    if (is_norm(instr)) sum_over(s, instr.kind, group.axis, of_group);
    add(sum, of_group);
  }
  if (!is_norm(instr) && n_checks_ > 0) add(sum, number(1 + n_checks_));  // what an earlier check has found
  sum_over(s, instr.kind, is_norm(instr) ? s.sharing_axis() : instr.axis, sum);
  if (is_norm(instr)) sum_over(s, instr.kind, GSEL_AXIS_PIPELINE, sum);
  ++n_checks_;
}

void StepNumbers::fetch(State& s) {
  if (!is_of(s) || std::exchange(is_fetched_, true)) return;
  pass_losses_on(s);
  sum_losses(s);
  device_->enqueue(&gsel_device_v1::copy, static_cast<void*>(on_host_.at(numbers_at_)),
                   static_cast<const void*>(number(0)), n_numbers() * sizeof(double), int32_t{GSEL_COPY_TO_HOST});
}

// The kernel reads the copy in memory of the host. The second weight is 0: see DeviceWatch::end_word.
void StepNumbers::enqueue_scale(State& s) {
  fetch(s);
  gsel_update_scale scale{};
  scale.struct_size = sizeof scale;
  scale.weights = weight_;
  scale.n_weights = 2;
  scale.squares = read(2);
  scale.ends = ends_of_checks_;
  scale.n_ends = static_cast<int32_t>(checks_.size());
  scale.first_norm = static_cast<int32_t>(std::ranges::find_if(checks_, is_norm) - checks_.begin());
  scale.refuses_non_finite = s.non_finite != NonFinite::off;
  scale.loss_scale = s.loss_scale.value();
  scale.clip_norm = s.config.train.clip_norm;
  scale.out = number(n_numbers() + kAxes);
  device_->enqueue(&gsel_device_v1::update_scale, static_cast<const gsel_update_scale*>(&scale));
  device_->enqueue(&gsel_device_v1::copy, static_cast<void*>(on_host_.at(numbers_at_ + n_numbers() * sizeof(double))),
                   static_cast<const void*>(scale.out), 2 * sizeof(double), int32_t{GSEL_COPY_TO_HOST});
}

void StepNumbers::step(State& s, const gsel_instr& instr) {
  const int32_t b = instr.bucket;
  if (!s.params.layout(b).steps) return;
  const double began = os::now_seconds();
  if (!next_factors_) {
    enqueue_scale(s);
    next_factors_ = on_device_.at(0);
  }
  if (s.params.whole_gradient(b)) zero_missing_gradients(s, b);
  const auto [shard, launch] = s.params.shard_to_step(b);
  next_factors_ = s.optimizer.step_in_graph(*device_, shard, next_factors_, number(n_numbers() + kAxes), launch);
  s.params.done_stepping(b);
  s.run->record.report.optimizer_s += os::now_seconds() - began;
}

// ---- on the host ----------------------------------------------------------------------------------------------------

// A step that is refused for its weight has updated nothing, so the run is put back to where it was known.
void StepNumbers::settle(State& s) {
  if (!is_of(s)) return;
  Run& run = *s.run;
  for (size_t m = 0; m < run.fetched.size(); ++m) take_loss(s, static_cast<int32_t>(m));
  run.loss_sum = *read(0);
  run.weight = *read(1);
  if (run.last_loss_allreduce >= 0 && !run.has_weight()) {
    run.position = static_cast<size_t>(run.last_loss_allreduce);
    agree_on_bad_weight(s);
    refuse_weight(s);
  }
  if (!checks_.empty()) finish_pending_checks(s);
  for (size_t i = 0; i < checks_.size(); ++i) {
    const double squares = *read(2 + i);
    if (!is_norm(checks_[i])) {
      run.overflowed = run.overflowed || !std::isfinite(squares);
      continue;
    }
    run.overflowed = run.overflowed || shows_overflow(s, squares);
    run.record.report.gradient_norm = std::sqrt(squares) / (run.weight * s.loss_scale.value());
    run.clip = clip_of(s, run.record.report.gradient_norm);
  }
}

}  // namespace gsel::execute
