// train/executor_collectives.cc: the instructions of the executor that need no callback: collectives on the
// communication stream, the loss, clipping and the optimizer. On an axis of one rank a collective is nothing.
#include <cmath>

#include "base/os.h"
#include "train/executor.h"

namespace gsel {
namespace {

constexpr double kClipEpsilon = 1e-6;  // of the published rule: max_norm / (norm + 1e-6)

int32_t optimizer_kind(const Config& config) {
  if (config.train.optimizer == "adamw") return GSEL_OPTIMIZER_ADAMW;
  return config.train.optimizer == "sgd" ? GSEL_OPTIMIZER_SGD : GSEL_OPTIMIZER_SIGN_SGD;
}

}  // namespace

// A parameter that no sample of this rank reached has gradient zero.
void Executor::zero_missing_gradients(int32_t bucket) {
  for (int32_t p : program_.buckets[bucket]) {
    if (weight_begun_[p]) continue;
    backend_->run(&gsel_backend_v1::zero, static_cast<void*>(params_.gradient(p)),
                  uint64_t{sizeof(float)} * model_.params()[p].n_elems, static_cast<gsel_stream*>(nullptr));
    weight_begun_[p] = true;
  }
}

void Executor::begin_collective(const gsel_instr& instr) {
  Reduction& reduction = reductions_[instr.bucket];
  const ParamStorage::Block& block = params_.block(instr.bucket);
  const bool reduce = instr.kind == GSEL_INSTR_REDUCE;
  if (reduce) zero_missing_gradients(instr.bucket);
  if (program_.mesh.size[instr.axis] == 1) return;

  void* data = reduce ? block.gradients.data() : block.params.data();
  const auto count = static_cast<uint64_t>(block.elems);
  gsel_collective call =
      reduce ? make_collective(GSEL_COLLECTIVE_ALLREDUCE, data, data, count, GSEL_F32, GSEL_SUM)
             : make_collective(GSEL_COLLECTIVE_BROADCAST, data, data, count, GSEL_F32, 0, instr.peer);
  compute_done_.record(nullptr);
  backend_->run(&gsel_backend_v1::stream_wait_event, comm_stream_->get(), compute_done_.get());
  if (reduce) reduction.begun.record(comm_stream_->get());
  comm_.collective(call, comm_stream_->get());
  reduction.done.record(comm_stream_->get());
  reduction.waiting = true;
  reduction.used = reduce;
}

void Executor::wait_bucket(int32_t bucket) {
  Reduction& reduction = reductions_[bucket];
  if (!reduction.waiting) return;
  const double began = os::now_seconds();
  reduction.done.wait();
  now_.exposed_comm_s += os::now_seconds() - began;
  reduction.waiting = false;
}

// The one place where the loss is normalised: sums over all ranks, then one division.
void Executor::loss_reduce(const gsel_instr& instr) {
  if (program_.mesh.size[instr.axis] > 1) {
    const double began = os::now_seconds();
    auto* none = static_cast<gsel_stream*>(nullptr);
    double parts[2] = {loss_sum_, weight_};
    backend_->run(&gsel_backend_v1::stream_wait, comm_stream_->get());
    const gsel_comm_count before = comm_.counts(GSEL_COLLECTIVE_ALLREDUCE);
    backend_->run(&gsel_backend_v1::copy, loss_.data(), static_cast<const void*>(parts), uint64_t{sizeof parts},
                  int32_t{GSEL_COPY_TO_DEVICE}, none);
    gsel_collective call =
        make_collective(GSEL_COLLECTIVE_ALLREDUCE, loss_.data(), loss_.data(), 2, GSEL_F64, GSEL_SUM);
    comm_.collective(call, comm_stream_->get());
    backend_->run(&gsel_backend_v1::stream_wait, comm_stream_->get());
    backend_->run(&gsel_backend_v1::copy, static_cast<void*>(parts), static_cast<const void*>(loss_.data()),
                  uint64_t{sizeof parts}, int32_t{GSEL_COPY_TO_HOST}, none);
    loss_sum_ = parts[0];
    weight_ = parts[1];
    const gsel_comm_count after = comm_.counts(GSEL_COLLECTIVE_ALLREDUCE);
    loss_counts_.calls += after.calls - before.calls;
    loss_counts_.bytes_sent += after.bytes_sent - before.bytes_sent;
    allreduced_before_.calls += after.calls - before.calls;
    allreduced_before_.bytes_sent += after.bytes_sent - before.bytes_sent;
    now_.exposed_comm_s += os::now_seconds() - began;
  }
  if (!(weight_ > 0))
    fail(GSEL_ERR_MODEL, "the loss weights of step {} sum to {}; the sum over all ranks must be positive", step_,
         weight_);
}

void Executor::norm() {
  double sum = 0;
  for (size_t b = 0; b < program_.buckets.size(); ++b) {
    const ParamStorage::Block& block = params_.block(static_cast<int32_t>(b));
    const auto* gradients = static_cast<const float*>(block.gradients.data());
    for (const Segment& s : block.segments) {
      if (s.flags & GSEL_PARAM_NO_CLIP) continue;
      double part = 0;
      backend_->run(&gsel_backend_v1::sum_squares, static_cast<const void*>(gradients + s.first), gsel_dtype{GSEL_F32},
                    static_cast<uint64_t>(s.count), &part, static_cast<gsel_stream*>(nullptr));
      sum += part;
    }
  }
  now_.gradient_norm = std::sqrt(sum) / weight_;
  clip_ = std::min(1.0, config_.train.clip_norm / (now_.gradient_norm + kClipEpsilon));
}

void Executor::step_bucket(int32_t bucket) {
  const double began = os::now_seconds();
  zero_missing_gradients(bucket);
  const ParamStorage::Block& block = params_.block(bucket);
  for (const Segment& s : block.segments) {
    auto part = [&](const Memory& memory) {
      return memory.data() ? static_cast<float*>(memory.data()) + s.first : nullptr;
    };
    gsel_optimizer_step step{};
    step.struct_size = sizeof step;
    step.kind = optimizer_kind(config_);
    step.param = part(block.params);
    step.gradient = part(block.gradients);
    step.state0 = part(block.states[0]);
    step.state1 = part(block.states[1]);
    step.count = static_cast<uint64_t>(s.count);
    step.t = step_ + 1;
    step.gradient_scale = (s.flags & GSEL_PARAM_NO_CLIP ? 1.0 : clip_) / weight_;
    step.learning_rate = config_.train.learning_rate;
    step.weight_decay = s.flags & GSEL_PARAM_NO_DECAY ? 0.0 : config_.train.weight_decay;
    step.momentum = config_.train.momentum;
    step.beta1 = config_.train.beta1;
    step.beta2 = config_.train.beta2;
    step.epsilon = config_.train.epsilon;
    backend_->run(&gsel_backend_v1::optimizer_step, static_cast<const gsel_optimizer_step*>(&step),
                  static_cast<gsel_stream*>(nullptr));
  }
  now_.optimizer_s += os::now_seconds() - began;
}

gsel_comm_count Executor::counts(gsel_instr_kind kind, gsel_axis axis) const {
  if (axis != GSEL_AXIS_DATA) return {};
  switch (kind) {
    case GSEL_INSTR_REDUCE:
      return reduce_counts_;
    case GSEL_INSTR_LOSS_REDUCE:
      return loss_counts_;
    case GSEL_INSTR_BROADCAST:
      return broadcast_counts_;
    default:
      return {};
  }
}

}  // namespace gsel
