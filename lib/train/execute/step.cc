// train/execute/step.cc: the end of a step. LOSS_ALLREDUCE sums the loss over all ranks, NORM and OVERFLOW the squares
// of the gradients, and STEP runs the optimizer on this rank's shard of a bucket.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/os.h"
#include "program/optimistic.h"
#include "program/stages.h"
#include "train/execute/graphs.h"
#include "train/execute/instructions.h"

namespace gsel::execute {

// ---- LOSS_ALLREDUCE ------------------------------------------------------------------------------------------------

void pass_losses(const State& s, const std::function<void(gsel_collective_kind, int32_t peer)>& call) {
  const int32_t own = s.axis_coordinate(GSEL_AXIS_PIPELINE);
  const int32_t from = pipeline_rank_of_layer(s.program(), s.model.loss_layer());
  if (s.axis_size(GSEL_AXIS_PIPELINE) == 1) return;
  if (own != from) return call(GSEL_COLLECTIVE_RECV, from);
  for (int32_t peer = 0; peer < s.axis_size(GSEL_AXIS_PIPELINE); ++peer)
    if (peer != from) call(GSEL_COLLECTIVE_SEND, peer);
}

namespace {

void pass_losses_on_host(State& s, std::span<double, 2> sums) {
  pass_losses(s, [&](gsel_collective_kind kind, int32_t peer) {
    const bool sends = kind == GSEL_COLLECTIVE_SEND;
    call_on_host(s, s.comms.losses(), GSEL_INSTR_LOSS_ALLREDUCE, GSEL_AXIS_PIPELINE,
                 make_collective(kind, sends ? sums.data() : nullptr, sends ? nullptr : sums.data(), sums.size(),
                                 GSEL_F64, 0, peer));
  });
}

}  // namespace

void agree_on_bad_weight(State& s) {
  const int32_t n = s.mesh.world_size();
  double first = s.run->bad_weight_microbatch < 0
                     ? std::numeric_limits<double>::infinity()
                     : static_cast<double>(int64_t{s.run->bad_weight_microbatch} * n + s.rank);
  for (gsel_axis axis : {s.sharing_axis(), GSEL_AXIS_PIPELINE, GSEL_AXIS_DATA})
    allreduce_numbers(s, 0, axis, {&first, 1}, GSEL_MIN);
  if (!std::isfinite(first)) return;
  s.run->bad_weight_rank = static_cast<int32_t>(static_cast<int64_t>(first) % n);
  s.run->bad_weight_microbatch = static_cast<int32_t>(static_cast<int64_t>(first) / n);
}

void refuse_weight(const State& s) {
  const Run& run = *s.run;
  const std::string odd =
      run.bad_weight_rank < 0
          ? ""
          : fmt::format("that of layer \"{}\" on rank {}, micro-batch {}, is negative or not finite; ",
                        s.model.layers()[static_cast<size_t>(s.model.loss_layer())].name, run.bad_weight_rank,
                        run.bad_weight_microbatch);
  throw Error(GSEL_ERR_MODEL,
              fmt::format("the loss weights of {} {} sum to {}; {}the sum over all ranks must be positive and finite",
                          run.evaluates() ? "the evaluation before step" : "step", s.step, run.weight, odd))
      .about_rank(run.bad_weight_rank);
}

void take_loss(State& s, int32_t microbatch) {
  const int64_t first = std::exchange(s.run->fetched[microbatch], -1);
  if (first < 0) return;
  for (size_t i = 0; i < 2; ++i) s.run->losses[microbatch][i] = s.numbers[static_cast<size_t>(first) + i];
  check_loss(s, *s.run, microbatch);
}

// The only place that normalises the loss: sums over all ranks, axis by axis, then one division.
void allreduce_loss(State& s, const gsel_instr& instr) {
  if (instr.axis == GSEL_AXIS_DATA) settle_messages(s);
  double sums[2] = {s.run->loss_sum, s.run->weight};
  if (std::ranges::any_of(s.run->fetched, [](int64_t i) { return i >= 0; })) {
    s.numbers.wait();
    for (size_t m = 0; m < s.run->fetched.size(); ++m) take_loss(s, static_cast<int32_t>(m));
  }
  for (std::array<double, 2>& loss : s.run->losses)
    for (size_t i = 0; i < 2; ++i) sums[i] += std::exchange(loss[i], 0);
  if (instr.axis == GSEL_AXIS_PIPELINE)
    pass_losses_on_host(s, sums);
  else
    allreduce_numbers(s, instr.kind, instr.axis, sums, GSEL_SUM);
  s.run->loss_sum = sums[0];
  s.run->weight = sums[1];
  if (static_cast<int32_t>(s.run->position) != s.run->last_loss_allreduce || s.run->has_weight()) return;
  agree_on_bad_weight(s);
  if (!s.run->evaluates()) refuse_weight(s);
}

// ---- NORM and OVERFLOW ---------------------------------------------------------------------------------------------

namespace {

constexpr double kClipEpsilon = 1e-6;  // as in the published rule: max_norm / (norm + 1e-6)

// Whether a parameter's gradient is in the number: an overflow in any, and each once in a norm. A tied parameter counts
// on its first pipeline rank, a whole parameter on the first rank of the sharing axis.
bool counts_in(const State& s, const gsel_instr& instr, size_t bucket, const Param& param) {
  if (instr_row(instr.kind).peers != InstrPeers::norm) return true;
  const bool is_first = s.axis_coordinate(s.sharing_axis()) == 0;
  return s.buckets[bucket].counts && !(param.flags & GSEL_PARAM_NO_CLIP) && (is_first || !param.shard.is_whole());
}

}  // namespace

gsel_axis divided_axis(const State& s, int32_t b) {
  const ProgramBucket& bucket = s.program().buckets[b];
  return s.axis_size(bucket.axis) > 1 && bucket.divides_state() ? bucket.axis : -1;
}

void enqueue_squares(State& s, const gsel_instr& instr) {
  auto& of_runs = s.squares.of_runs;
  of_runs.clear();
  auto enqueue = [&](size_t i) {
    const auto b = static_cast<int32_t>(i);
    if (s.params.whole_gradient(b)) zero_missing_gradients(s, b);
    const float* own = s.params.own_gradient(b);
    for (const ParamRun& run : s.params.layout(b).runs)
      if (counts_in(s, instr, i, s.model.params()[run.param]))
        of_runs.emplace_back(i, s.numbers.sum_squares(own + run.first, GSEL_F32, static_cast<uint64_t>(run.count)));
  };
  for (gsel_axis axis = -1; axis < kAxes; ++axis)
    for (size_t i = 0; i < s.buckets.size(); ++i)
      if (divided_axis(s, static_cast<int32_t>(i)) == axis) enqueue(i);
}

namespace {

// By bucket, the sum of squares of this rank's shard of its gradient. The device is waited for once.
const std::vector<double>& own_squares(State& s, const gsel_instr& instr) {
  std::vector<double>& sums = s.squares.of_buckets;
  sums.assign(s.buckets.size(), 0);
  if (!s.graphs->is_after_launch()) enqueue_squares(s, instr);
  s.numbers.wait();
  for (const auto& [bucket, at] : s.squares.of_runs) sums[bucket] += s.numbers[at];
  finish_pending_checks(s);
  return sums;
}

}  // namespace

// The square of an f32 is finite in f64, and so is any sum that memory can hold.
void find_overflow(State& s, const gsel_instr& instr) {
  const std::vector<double>& squares = own_squares(s, instr);
  const bool all_finite = std::ranges::all_of(squares, [](double sum) { return std::isfinite(sum); });
  double found = s.run->overflowed || !all_finite;
  if (is_optimistic(instr))
    start_optimistic(s, instr, found);
  else
    allreduce_numbers(s, instr.kind, instr.axis, {&found, 1}, GSEL_MAX);
  s.run->overflowed = found != 0;
}

// Every gradient counts once. Shards are summed over their axis; gradients that all ranks of an axis have are not.
void norm(State& s, const gsel_instr& instr) {
  const std::vector<double>& squares = own_squares(s, instr);
  std::array<double, kAxes> divided{};
  std::array<bool, kAxes> any{};
  double sum = 0;
  for (size_t i = 0; i < s.buckets.size(); ++i) {
    const gsel_axis axis = divided_axis(s, static_cast<int32_t>(i));
    (axis < 0 ? sum : divided[axis]) += squares[i];
    if (axis >= 0) any[axis] = true;
  }
  for (gsel_axis axis = 0; axis < kAxes; ++axis) {
    if (!any[axis]) continue;
    allreduce_numbers(s, instr.kind, axis, {&divided[axis], 1}, GSEL_SUM);
    sum += divided[axis];
  }
  allreduce_numbers(s, instr.kind, s.sharing_axis(), {&sum, 1}, GSEL_SUM);
  if (is_optimistic(instr)) return start_optimistic(s, instr, sum);
  allreduce_numbers(s, instr.kind, GSEL_AXIS_PIPELINE, {&sum, 1}, GSEL_SUM);
  s.run->overflowed = s.run->overflowed || shows_overflow(s, sum);
  s.run->record.report.gradient_norm = std::sqrt(sum) / (s.run->weight * s.loss_scale.value());
  s.run->clip = clip_of(s, s.run->record.report.gradient_norm);
}

// A norm is finite if and only if all its gradients are.
bool shows_overflow(const Fixed& fixed, double squares) {
  return fixed.non_finite != NonFinite::off && !std::isfinite(squares);
}

double clip_of(const Fixed& fixed, double gradient_norm) {
  if (fixed.config.train.clip_norm <= 0) return 1;
  return std::min(1.0, fixed.config.train.clip_norm / (gradient_norm + kClipEpsilon));
}

// ---- STEP ----------------------------------------------------------------------------------------------------------

namespace {

// Sums two numbers per parameter of a bucket over the sharing axis; parameters that are whole on each rank count once.
void sum_over_shards(State& s, const ProgramBucket& bucket, std::span<double> numbers) {
  auto is_whole = [&](int32_t p) { return s.model.params()[p].shard.is_whole(); };
  if (std::ranges::all_of(bucket.params, is_whole)) return;
  for (size_t i = 0; i < bucket.params.size(); ++i)
    if (s.axis_coordinate(s.sharing_axis()) > 0 && is_whole(bucket.params[i])) numbers[2 * i] = numbers[2 * i + 1] = 0;
  allreduce_numbers(s, GSEL_INSTR_STEP, s.sharing_axis(), numbers, GSEL_SUM);
}

}  // namespace

void step_optimizer(State& s, const gsel_instr& instr) {
  const int32_t b = instr.bucket;
  if (s.run->overflowed || !s.params.layout(b).steps) return;
  const double began = os::now_seconds();
  if (s.params.whole_gradient(b)) zero_missing_gradients(s, b);
  const StepScale scale{s.updates, 1 / (s.run->weight * s.loss_scale.value()), s.run->clip};
  const ProgramBucket& bucket = s.program().buckets[b];
  const Optimizer::SumOverOwners sum_over_owners = [&s, &bucket](std::span<double> numbers) {
    if (bucket.shards_state()) allreduce_numbers(s, GSEL_INSTR_STEP, bucket.axis, numbers, GSEL_SUM);
    sum_over_shards(s, bucket, numbers);
  };
  const auto [shard, launch] = s.params.shard_to_step(b);
  if (s.validation.is_open) s.step_copy->keep(b, shard);
  try {
    s.optimizer.step(*s.device, shard, scale, bucket.params, sum_over_owners, launch);
  } catch (const Error& cause) {
    s.params.done_stepping(b);
    if (cause.code() != GSEL_ERR_CALLBACK) throw;
    throw Error(GSEL_ERR_CALLBACK, fmt::format("{}: {}", s.where_in_step(), cause.message())).about_rank(s.rank);
  }
  s.params.done_stepping(b);
  s.run->record.report.optimizer_s += os::now_seconds() - began;
}

}  // namespace gsel::execute
