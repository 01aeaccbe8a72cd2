// train/execute/instructions/norm.cc: NORM and OVERFLOW: sums of squares of the gradients.
#include <algorithm>
#include <cmath>

#include "program/optimistic.h"
#include "train/execute/instructions.h"

namespace gsel::execute {
namespace {

constexpr double kClipEpsilon = 1e-6;  // as in the published rule: max_norm / (norm + 1e-6)

// Whether the bucket's gradient is sharded over its axis or owned by one rank, so that numbers computed from it must be
// summed over the axis.
bool is_divided(const State& s, int32_t b) {
  const ProgramBucket& bucket = s.program().buckets[b];
  return s.axis_size(bucket.axis) > 1 && (bucket.shards_state() || bucket.owner >= 0);
}

// By bucket, the sum of squares of this rank's shard of its gradient, over parameters that count. The device is waited
// for once.
template <class Counts>
const std::vector<double>& own_squares(State& s, Counts&& counts) {
  auto& [sums, of_runs] = s.squares;
  sums.assign(s.buckets.size(), 0);
  of_runs.clear();
  for (size_t i = 0; i < s.buckets.size(); ++i) {
    const auto b = static_cast<int32_t>(i);
    if (s.params.whole_gradient(b)) zero_missing_gradients(s, b);
    const float* own = s.params.own_gradient(b);
    for (const ParamRun& run : s.params.layout(b).runs)
      if (counts(i, s.model.params()[run.param]))
        of_runs.emplace_back(i, s.numbers.sum_squares(own + run.first, GSEL_F32, static_cast<uint64_t>(run.count)));
  }
  s.numbers.wait();
  for (const auto& [bucket, at] : of_runs) sums[bucket] += s.numbers[at];
  take_looks(s);
  return sums;
}

}  // namespace

// The square of an f32 is finite in f64, and so is any sum that memory can hold.
void find_overflow(State& s, const gsel_instr& instr) {
  const std::vector<double>& squares = own_squares(s, [](size_t, const Param&) { return true; });
  const bool all_finite = std::ranges::all_of(squares, [](double sum) { return std::isfinite(sum); });
  double found = s.run->overflowed || !all_finite;
  if (is_optimistic(instr))
    start_optimistic(s, instr, found);
  else
    allreduce_numbers(s, instr.kind, instr.axis, {&found, 1}, GSEL_MAX);
  s.run->overflowed = found != 0;
}

// Every gradient counts once. Shards are summed over their axis; gradients that all ranks of an axis have are not. A
// tied parameter counts on its first pipeline rank, a whole parameter on the first rank of the sharing axis.
void norm(State& s, const gsel_instr& instr) {
  const bool is_first = s.axis_coordinate(s.sharing_axis()) == 0;
  const std::vector<double>& squares = own_squares(s, [&](size_t bucket, const Param& param) {
    return s.buckets[bucket].counts && !(param.flags & GSEL_PARAM_NO_CLIP) && (is_first || !param.shard.is_whole());
  });
  std::array<double, kAxes> divided{};
  std::array<bool, kAxes> any{};
  double sum = 0;
  for (size_t i = 0; i < s.buckets.size(); ++i) {
    const auto b = static_cast<int32_t>(i);
    if (is_divided(s, b)) {
      divided[s.program().buckets[b].axis] += squares[i];
      any[s.program().buckets[b].axis] = true;
    } else {
      sum += squares[i];
    }
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

}  // namespace gsel::execute
