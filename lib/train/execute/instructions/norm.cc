// train/execute/instructions/norm.cc: NORM and OVERFLOW: sums of squares of the gradients.
#include <algorithm>
#include <cmath>
#include <functional>

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

// Sum of squares of this rank's shard of a gradient, over parameters that count.
double own_squares(State& s, int32_t b, const std::function<bool(const Param&)>& counts) {
  if (s.params.whole_gradient(b)) zero_missing_gradients(s, b);
  const float* own = s.params.own_gradient(b);
  double sum = 0;
  for (const ParamRun& run : s.params.layout(b).runs)
    if (counts(s.model.params()[run.param]))
      sum += s.sum_squares(own + run.first, GSEL_F32, static_cast<uint64_t>(run.count));
  return sum;
}

}  // namespace

// The square of an f32 is finite in f64, and so is any sum that memory can hold.
void find_overflow(State& s, const gsel_instr& instr) {
  double found = s.run->overflowed;
  for (size_t b = 0; b < s.buckets.size(); ++b)
    if (!std::isfinite(own_squares(s, static_cast<int32_t>(b), [](const Param&) { return true; }))) found = 1;
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
  auto counts = [&](const Param& param) {
    return !(param.flags & GSEL_PARAM_NO_CLIP) && (is_first || !param.shard.is_whole());
  };
  std::array<double, kAxes> divided{};
  std::array<bool, kAxes> any{};
  double sum = 0;
  for (size_t i = 0; i < s.buckets.size(); ++i) {
    const auto b = static_cast<int32_t>(i);
    const double squares = s.buckets[b].counts ? own_squares(s, b, counts) : 0;
    if (is_divided(s, b)) {
      divided[s.program().buckets[b].axis] += squares;
      any[s.program().buckets[b].axis] = true;
    } else {
      sum += squares;
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
