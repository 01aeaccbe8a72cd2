// train/execute/executor_optimizer.cc: what follows backward: the loss of all ranks, overflow, the gradient norm, the
// optimizer.
#include <algorithm>
#include <cmath>

#include "base/os.h"
#include "program/stages.h"
#include "program/verify/post_validation.h"
#include "train/execute/executor.h"

namespace gsel {
namespace {

constexpr double kClipEpsilon = 1e-6;  // of the published rule: max_norm / (norm + 1e-6)

}  // namespace

// The one place where the loss is normalised: sums over all ranks, axis by axis, then one division.
void Executor::loss_allreduce(const gsel_instr& instr) {
  if (instr.axis == GSEL_AXIS_DATA) settle_messages();
  double parts[2] = {loss_sum_, weight_};
  for (std::array<double, 2>& loss : losses_)
    for (size_t i = 0; i < 2; ++i) parts[i] += std::exchange(loss[i], 0);
  if (instr.axis == GSEL_AXIS_PIPELINE)
    tell_losses(parts);
  else
    combine_now(instr.kind, instr.axis, parts, GSEL_SUM);
  loss_sum_ = parts[0];
  weight_ = parts[1];
  if (static_cast<int32_t>(position_) == run_plan_->last_loss_reduce && !evaluating_ && !(weight_ > 0)) refuse_weight();
}

void Executor::refuse_weight() const {
  fail(GSEL_ERR_MODEL, "the loss weights of {} {} sum to {}; the sum over all ranks must be positive",
       evaluating_ ? "the evaluation before step" : "step", step_, weight_);
}

// Over a pipeline one place has them all. It tells the others and goes on: a place that has ended its step begins the
// next one while others are still at it, unless something else of all places is looked at.
void Executor::tell_losses(std::span<double, 2> parts) {
  const int32_t place = axis_place(GSEL_AXIS_PIPELINE), from = place_of_layer(program(), model_.loss_layer());
  auto* none = static_cast<gsel_stream*>(nullptr);
  auto call = [&](gsel_collective_kind kind, int32_t peer) {
    const bool sends = kind == GSEL_COLLECTIVE_SEND;
    call_in(comms_.losses(), GSEL_INSTR_LOSS_ALLREDUCE, GSEL_AXIS_PIPELINE,
            make_collective(kind, sends ? staging_.data() : nullptr, sends ? nullptr : staging_.data(), parts.size(),
                            GSEL_F64, 0, peer));
  };
  if (axis_size(GSEL_AXIS_PIPELINE) == 1) return;
  if (place != from) {
    call(GSEL_COLLECTIVE_RECV, from);
    backend_->run(&gsel_backend_v1::copy, static_cast<void*>(parts.data()), static_cast<const void*>(staging_.data()),
                  uint64_t{parts.size_bytes()}, int32_t{GSEL_COPY_TO_HOST}, none);
    return;
  }
  backend_->run(&gsel_backend_v1::copy, staging_.data(), static_cast<const void*>(parts.data()),
                uint64_t{parts.size_bytes()}, int32_t{GSEL_COPY_TO_DEVICE}, none);
  for (int32_t peer = 0; peer < axis_size(GSEL_AXIS_PIPELINE); ++peer)
    if (peer != from) call(GSEL_COLLECTIVE_SEND, peer);
}

// Whether the ranks of its axis own different parts of the bucket's gradient, or one rank all of it: numbers that each
// takes of its own are then to be put together.
bool Executor::is_divided(int32_t b) const {
  const ProgramBucket& bucket = program().buckets[b];
  return axis_size(bucket.axis) > 1 && (bucket.shards_state() || bucket.owner >= 0);
}

// Sum of squares of what this rank owns of a gradient, of parameters that count.
double Executor::own_squares(int32_t b, const std::function<bool(const Param&)>& counts) {
  if (params_.whole_gradient(b)) zero_missing_gradients(b);
  const float* own = params_.own_gradient(b);
  double sum = 0;
  for (const Piece& piece : params_.layout(b).pieces) {
    if (!counts(model_.params()[piece.param])) continue;
    double part = 0;
    backend_->run(&gsel_backend_v1::sum_squares, static_cast<const void*>(own + piece.first), gsel_dtype{GSEL_F32},
                  static_cast<uint64_t>(piece.count), &part, static_cast<gsel_stream*>(nullptr));
    sum += part;
  }
  return sum;
}

// A square of an f32 is finite in f64, and so is any sum of them that memory can hold.
void Executor::find_overflow(const gsel_instr& instr) {
  double found = overflowed_;
  for (size_t b = 0; b < buckets_.size(); ++b)
    if (!std::isfinite(own_squares(static_cast<int32_t>(b), [](const Param&) { return true; }))) found = 1;
  if (is_optimistic(instr))
    go_on_without(instr, found);
  else
    combine_now(instr.kind, instr.axis, {&found, 1}, GSEL_MAX);
  overflowed_ = found != 0;
}

// Every gradient counts once: what ranks own different parts of is summed over its axis, what all have alike is not,
// and of what several places of a pipeline hold the first one's. Over the tensor axis what is split is summed, and of
// what each rank has whole the first one's.
void Executor::norm(const gsel_instr& instr) {
  const bool is_first = axis_place(sharing_axis()) == 0;
  auto counts = [&](const Param& param) {
    return !(param.flags & GSEL_PARAM_NO_CLIP) && (is_first || !param.part.is_whole());
  };
  std::array<double, kAxes> divided{};
  std::array<bool, kAxes> any{};
  double sum = 0;
  for (size_t i = 0; i < buckets_.size(); ++i) {
    const auto b = static_cast<int32_t>(i);
    const double squares = buckets_[b].counts ? own_squares(b, counts) : 0;
    if (is_divided(b)) {
      divided[program().buckets[b].axis] += squares;
      any[program().buckets[b].axis] = true;
    } else {
      sum += squares;
    }
  }
  for (gsel_axis axis = 0; axis < kAxes; ++axis) {
    if (!any[axis]) continue;
    combine_now(instr.kind, axis, {&divided[axis], 1}, GSEL_SUM);
    sum += divided[axis];
  }
  combine_now(instr.kind, sharing_axis(), {&sum, 1}, GSEL_SUM);
  if (is_optimistic(instr)) return go_on_without(instr, sum);
  combine_now(instr.kind, GSEL_AXIS_PIPELINE, {&sum, 1}, GSEL_SUM);
  overflowed_ = overflowed_ || tells_overflow(sum);
  now_.report.gradient_norm = std::sqrt(sum) / (weight_ * loss_scale_.value());
  clip_ = clip_of(now_.report.gradient_norm);
}

// A norm is finite if and only if all gradients that count in it are.
bool Executor::tells_overflow(double squares) const {
  return non_finite_ != NonFinite::off && !std::isfinite(squares);
}

double Executor::clip_of(double gradient_norm) const {
  if (config_.train.clip_norm <= 0) return 1;
  return std::min(1.0, config_.train.clip_norm / (gradient_norm + kClipEpsilon));
}

// Of what this rank steps of a bucket: each rank of the axis has a part of every sum.
void Executor::allreduce_partial(const gsel_instr& instr) {
  const int32_t b = instr.bucket;
  if (axis_size(instr.axis) == 1 || !params_.layout(b).steps) return;
  if (params_.whole_gradient(b)) zero_missing_gradients(b);
  float* own = params_.own_gradient(b);
  const auto elems = static_cast<uint64_t>(params_.layout(b).own_elems());
  call_now(instr.kind, instr.axis, make_collective(GSEL_COLLECTIVE_ALLREDUCE, own, own, elems, GSEL_F32, GSEL_SUM));
}

// Of what this rank steps of a bucket, over the places of the pipeline that hold its parameters.
void Executor::allreduce_tied(const gsel_instr& instr) {
  const int32_t b = instr.bucket;
  if (axis_size(GSEL_AXIS_PIPELINE) == 1 || !params_.layout(b).steps) return;
  if (params_.whole_gradient(b)) zero_missing_gradients(b);
  float* own = params_.own_gradient(b);
  const auto elems = static_cast<uint64_t>(params_.layout(b).own_elems());
  call_in(comms_.tie(b), instr.kind, GSEL_AXIS_PIPELINE,
          make_collective(GSEL_COLLECTIVE_ALLREDUCE, own, own, elems, GSEL_F32, GSEL_SUM));
}

// Two numbers for each parameter of a bucket, of what this place of the tensor axis has of it: of the whole.
void Executor::sum_over_parts(const ProgramBucket& bucket, std::span<double> numbers) {
  auto is_whole = [&](int32_t p) { return model_.params()[p].part.is_whole(); };
  if (std::ranges::all_of(bucket.params, is_whole)) return;
  for (size_t i = 0; i < bucket.params.size(); ++i)
    if (axis_place(sharing_axis()) > 0 && is_whole(bucket.params[i])) numbers[2 * i] = numbers[2 * i + 1] = 0;
  combine_now(GSEL_INSTR_STEP, sharing_axis(), numbers, GSEL_SUM);
}

void Executor::step_bucket(const gsel_instr& instr) {
  const int32_t b = instr.bucket;
  if (overflowed_ || !params_.layout(b).steps) return;
  const double began = os::now_seconds();
  if (params_.whole_gradient(b)) zero_missing_gradients(b);
  const StepScale scale{updates_, 1 / (weight_ * loss_scale_.value()), clip_};
  const ProgramBucket& bucket = program().buckets[b];
  const Optimizer::SumOverOwners sum_over_owners = [this, &bucket](std::span<double> numbers) {
    if (bucket.shards_state()) combine_now(GSEL_INSTR_STEP, bucket.axis, numbers, GSEL_SUM);
    sum_over_parts(bucket, numbers);
  };
  const Stretch stretch = params_.stretch(b);
  keep_until_validated(b, stretch);
  try {
    optimizer_.step(*backend_, stretch, scale, bucket.params, sum_over_owners);
  } catch (const Error& cause) {
    params_.done_with(b, true);
    if (cause.code() != GSEL_ERR_CALLBACK) throw;
    throw Error(GSEL_ERR_CALLBACK, fmt::format("{}: {}", where_in_step(), cause.message()))
        .about_rank(comms_.world().rank());
  }
  params_.done_with(b, true);
  now_.report.optimizer_s += os::now_seconds() - began;
}

}  // namespace gsel
