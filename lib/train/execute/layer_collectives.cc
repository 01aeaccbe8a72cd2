// train/execute/layer_collectives.cc: what the ranks of an axis do together for a layer. Phases stand between the calls
// of one callback: a buffer is reduced in place, or ring-shifted, alternating between two pieces of memory; a
// micro-batch without samples takes part with the operation's neutral element. Redistributions are layers of the
// library's own, which change a value's placement on the sharing axis in forward, and that of its gradient in backward.
// If nothing has to be done, or a sum can be made in place, both values share memory (train/state/arena_plan.h).
#include <algorithm>
#include <functional>
#include <limits>

#include "base/dtype.h"
#include "model/views.h"
#include "train/execute/instructions.h"

namespace gsel::execute {

// ---- phases --------------------------------------------------------------------------------------------------------

namespace {

const std::vector<gsel_phase> kNone;

int32_t buffer_of(const Layer& layer, gsel_instr_kind kind, size_t k) {
  return (is_forward(kind) ? layer.forward_buffer_of : layer.backward_buffer_of)[k];
}

// In an inference, the data axis does not take part: one replica has all samples.
int32_t ranks_of(const State& s, const gsel_phase& phase) {
  return s.run->is_one_replica() && phase.axis != s.sharing_axis() ? 1 : s.axis_size(phase.axis);
}

// Sends the buffer to the next rank of the axis; the last rank sends to the first.
void shift_ring(State& s, const gsel_instr& instr, size_t k) {
  const gsel_phase& phase = phases_of(s.layer_of(instr), instr.kind)[k];
  const int32_t i = buffer_of(s.layer_of(instr), instr.kind, k), n = ranks_of(s, phase),
                own = s.axis_coordinate(phase.axis);
  const void* src = phase_buffer(s, instr, i, k);
  void* dst = phase_buffer(s, instr, i, k + 1);
  const auto elems = static_cast<uint64_t>(phase_elems(phase, s.program().microbatches[instr.microbatch].count));
  if (n == 1) {
    s.copy(dst, src, elems * dtype_bytes(phase.dtype), GSEL_COPY_ON_DEVICE);
    return;
  }
  gsel_collective call = make_collective(GSEL_COLLECTIVE_SENDRECV, src, dst, elems, phase.dtype, 0, (own + 1) % n);
  call.source = (own + n - 1) % n;
  call.recv_count = elems;
  call_now(s, is_forward(instr.kind) ? GSEL_FORWARD : GSEL_BACKWARD_INPUT, phase.axis, call);
}

}  // namespace

const std::vector<gsel_phase>& phases_of(const Layer& layer, gsel_instr_kind kind) {
  if (is_forward(kind)) return layer.forward_phases;
  return known_form_of(kind).input_half ? layer.backward_phases : kNone;
}

const std::vector<gsel_phase>& buffers_of(const Layer& layer, gsel_instr_kind kind) {
  if (is_forward(kind)) return layer.forward_buffers;
  return known_form_of(kind).input_half ? layer.backward_buffers : kNone;
}

// The i-th buffer after `done` phases.
void* phase_buffer(const State& s, const gsel_instr& instr, int32_t i, size_t done) {
  const std::vector<gsel_phase>& phases = phases_of(s.layer_of(instr), instr.kind);
  size_t shifts = 0;
  for (size_t k = 0; k < done; ++k) shifts += ring_shift(phases[k]) && buffer_of(s.layer_of(instr), instr.kind, k) == i;
  const ArenaOperands::OfPhase& operand = s.operands().phases[i];
  return s.at(shifts % 2 ? operand.shifted : operand.buffer);
}

void reduce_phase(State& s, const gsel_instr& instr, size_t k) {
  const gsel_phase& phase = phases_of(s.layer_of(instr), instr.kind)[k];
  if (phase.axis < 0) return;
  if (ring_shift(phase)) return shift_ring(s, instr, k);
  if (ranks_of(s, phase) == 1) return;
  const int64_t elems = phase_elems(phase, s.program().microbatches[instr.microbatch].count);
  void* data = phase_buffer(s, instr, buffer_of(s.layer_of(instr), instr.kind, k), k);
  const gsel_instr_kind counted_under = is_forward(instr.kind) ? GSEL_FORWARD : GSEL_BACKWARD_INPUT;
  call_now(s, counted_under, phase.axis,
           make_collective(GSEL_COLLECTIVE_ALLREDUCE, data, data, static_cast<uint64_t>(elems), phase.dtype, phase.op));
}

void join_phases(State& s, const gsel_instr& instr) {
  const std::vector<gsel_phase>& phases = phases_of(s.layer_of(instr), instr.kind);
  for (size_t k = 0; k < phases.size(); ++k) {
    const auto elems = static_cast<size_t>(phase_elems(phases[k], s.program().microbatches[instr.microbatch].count));
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    const double neutral = phases[k].op == GSEL_MAX ? -kInfinity : phases[k].op == GSEL_MIN ? kInfinity : 0;
    std::vector<char>& bytes = s.lent.neutral;
    bytes.resize(elems * dtype_bytes(phases[k].dtype));
    if (phases[k].dtype == GSEL_F32)
      std::fill_n(reinterpret_cast<float*>(bytes.data()), elems, static_cast<float>(neutral));
    else
      std::fill_n(reinterpret_cast<double*>(bytes.data()), elems, neutral);
    s.copy(phase_buffer(s, instr, buffer_of(s.layer_of(instr), instr.kind, k), k), bytes.data(), bytes.size(),
           GSEL_COPY_TO_DEVICE);
    reduce_phase(s, instr, k);
  }
}

// Runs the remaining reductions so that other ranks do not wait; the contents no longer matter.
void finish_phases(State& s, const gsel_instr& instr) {
  for (size_t k = s.run->phase > 0 ? s.run->phase - 1 : 0; k < phases_of(s.layer_of(instr), instr.kind).size(); ++k)
    reduce_phase(s, instr, k);
  s.run->phase = 0;
}

// ---- redistributions -----------------------------------------------------------------------------------------------

namespace {

void redistribute(State& s, gsel_instr_kind poster, const RedistributionJob& job) {
  const Value& value = s.model.values()[job.from];
  auto make = [&](gsel_collective call) {
    call.label = {value.name.data(), value.name.size()};
    call_now(s, poster, s.sharing_axis(), call);
  };
  s.redistributor.run(job, std::ref(make));  // allocates nothing
}

void redistribute_value(State& s, const gsel_instr& instr, const Layer& layer) {
  const int32_t from = layer.inputs.front(), to = layer.outputs.front(), mb = instr.microbatch;
  const auto& values = s.model.values();
  redistribute(s, GSEL_FORWARD,
               {forward_redistribution(values[from].placement, values[to].placement), from, to,
                s.program().microbatches[mb].count, s.at(s.operands().inputs[0].value),
                s.at(s.operands().outputs[0].value), s.at(s.operands().packing)});
}

// Only this layer reads the output's gradient. If that becomes the input's gradient in place, it is the first
// contribution as it is, or is added to earlier ones.
void redistribute_gradient(State& s, const gsel_instr& instr, const Layer& layer) {
  const int32_t from = layer.outputs.front(), to = layer.inputs.front(), mb = instr.microbatch;
  const auto& values = s.model.values();
  const Redistribution redistribution = backward_redistribution(values[to].placement, values[from].placement);
  const ArenaOperands& operands = s.operands();
  void* src = s.at(operands.outputs[0].gradient);
  const bool in_place = stays_in_place(redistribution, s.axis_size(s.sharing_axis()));
  void* dst = in_place ? src : s.at(operands.inputs[0].contribution());
  redistribute(s, GSEL_BACKWARD_INPUT,
               {redistribution, from, to, s.program().microbatches[mb].count, src, dst, s.at(operands.packing)});
  if (!in_place) return finish_contribution(s, operands.inputs[0], to, mb);
  void* sum = s.at(operands.inputs[0].gradient);
  if (sum == src) return;
  s.add(sum, src, values[to].dtype, static_cast<uint64_t>(value_elems(values[to], s.program().microbatches[mb].count)));
}

}  // namespace

void redistribute_layer(State& s, const gsel_instr& instr) {
  const Layer& layer = s.layer_of(instr);
  const bool backward = instr.kind == GSEL_BACKWARD_INPUT;
  if (!s.is_empty(instr.microbatch))
    backward ? redistribute_gradient(s, instr, layer) : redistribute_value(s, instr, layer);
  if (s.is_at_last_backward()) s.backward_done.record_compute();
}

}  // namespace gsel::execute
