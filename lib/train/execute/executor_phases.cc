// train/execute/executor_phases.cc: the phases of layers: what stands between the calls of one callback. A buffer is
// reduced in place, or passed on round its axis: then it goes to and fro between two places. A micro-batch without
// samples takes part with the element that changes no result.
#include <algorithm>
#include <limits>

#include "base/dtype.h"
#include "train/execute/executor.h"
#include "train/memory/views.h"

namespace gsel {
namespace {

bool is_forward(gsel_instr_kind kind) {
  return kind == GSEL_FORWARD || kind == GSEL_INSTR_RECOMPUTE;
}

const std::vector<gsel_phase> kNone;

}  // namespace

const std::vector<gsel_phase>& Executor::phases_of(const gsel_instr& instr) const {
  if (is_forward(instr.kind)) return layer_of(instr).forward_phases;
  return instr.kind == GSEL_BACKWARD_WEIGHT ? kNone : layer_of(instr).backward_phases;
}

const std::vector<gsel_phase>& Executor::buffers_of(const gsel_instr& instr) const {
  if (is_forward(instr.kind)) return layer_of(instr).forward_buffers;
  return instr.kind == GSEL_BACKWARD_WEIGHT ? kNone : layer_of(instr).backward_buffers;
}

int32_t Executor::buffer_of(const gsel_instr& instr, size_t k) const {
  return (is_forward(instr.kind) ? layer_of(instr).forward_buffer_of : layer_of(instr).backward_buffer_of)[k];
}

// Of the i-th buffer, after so many phases.
void* Executor::buffer_place(const gsel_instr& instr, int32_t i, size_t done) const {
  const std::vector<gsel_phase>& phases = phases_of(instr);
  size_t passed = 0;
  for (size_t k = 0; k < done; ++k) passed += ring_shift(phases[k]) && buffer_of(instr, k) == i;
  return at(passed % 2 ? plan().passed(position_, i) : plan().phase(position_, i));
}

// In an inference the samples of a replica are all there are.
int32_t Executor::ranks_of(const gsel_phase& phase) const {
  return inference_ && phase.axis != sharing_axis() ? 1 : axis_size(phase.axis);
}

void Executor::reduce_phase(const gsel_instr& instr, size_t k) {
  const gsel_phase& phase = phases_of(instr)[k];
  if (phase.axis < 0) return;
  if (ring_shift(phase)) return pass_on(instr, k);
  if (ranks_of(phase) == 1) return;
  const int64_t elems = phase_elems(phase, program().microbatches[instr.microbatch].count);
  void* data = buffer_place(instr, buffer_of(instr, k), k);
  const gsel_instr_kind counted_under = is_forward(instr.kind) ? GSEL_FORWARD : GSEL_BACKWARD_INPUT;
  call_now(counted_under, phase.axis,
           make_collective(GSEL_COLLECTIVE_ALLREDUCE, data, data, static_cast<uint64_t>(elems), phase.dtype, phase.op));
}

// To the next place of the axis, from the last to the first.
void Executor::pass_on(const gsel_instr& instr, size_t k) {
  const gsel_phase& phase = phases_of(instr)[k];
  const int32_t i = buffer_of(instr, k), n = ranks_of(phase), place = axis_place(phase.axis);
  const void* src = buffer_place(instr, i, k);
  void* dst = buffer_place(instr, i, k + 1);
  const auto elems = static_cast<uint64_t>(phase_elems(phase, program().microbatches[instr.microbatch].count));
  if (n == 1) {
    backend_->run(&gsel_backend_v1::copy, dst, src, elems * dtype_bytes(phase.dtype), int32_t{GSEL_COPY_ON_DEVICE},
                  static_cast<gsel_stream*>(nullptr));
    return;
  }
  gsel_collective call = make_collective(GSEL_COLLECTIVE_SENDRECV, src, dst, elems, phase.dtype, 0, (place + 1) % n);
  call.source = (place + n - 1) % n;
  call.recv_count = elems;
  call_now(is_forward(instr.kind) ? GSEL_FORWARD : GSEL_BACKWARD_INPUT, phase.axis, call);
}

void Executor::join_phases(const gsel_instr& instr) {
  const std::vector<gsel_phase>& phases = phases_of(instr);
  for (size_t k = 0; k < phases.size(); ++k) {
    const auto elems = static_cast<size_t>(phase_elems(phases[k], program().microbatches[instr.microbatch].count));
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    const double neutral = phases[k].op == GSEL_MAX ? -kInfinity : phases[k].op == GSEL_MIN ? kInfinity : 0;
    neutral_.resize(elems * dtype_bytes(phases[k].dtype));
    if (phases[k].dtype == GSEL_F32)
      std::fill_n(reinterpret_cast<float*>(neutral_.data()), elems, static_cast<float>(neutral));
    else
      std::fill_n(reinterpret_cast<double*>(neutral_.data()), elems, neutral);
    backend_->run(&gsel_backend_v1::copy, buffer_place(instr, buffer_of(instr, k), k),
                  static_cast<const void*>(neutral_.data()), uint64_t{neutral_.size()}, int32_t{GSEL_COPY_TO_DEVICE},
                  static_cast<gsel_stream*>(nullptr));
    reduce_phase(instr, k);
  }
}

}  // namespace gsel
