// program/simulate/durations.cc: see durations.h.
#include "program/simulate/durations.h"

#include "program/shards.h"

namespace gsel {

int32_t rounds_of(gsel_instr_kind kind, int32_t ranks) {
  const InstrRow* row = find_instr_row(kind);
  const bool once = row && row->call != GSEL_COLLECTIVE_BARRIER && row->call != GSEL_COLLECTIVE_ALLREDUCE;
  return (once ? 1 : 2) * (ranks - 1);
}

double ring_seconds(const LinkTime& link, gsel_instr_kind kind, int32_t ranks, uint64_t calls, uint64_t bytes) {
  // Traffic counts a broadcast's root once per reader; a ring sends it once.
  const InstrRow* row = find_instr_row(kind);
  const bool broadcasts = row && row->call == GSEL_COLLECTIVE_BROADCAST;
  const double sent = static_cast<double>(bytes) / (broadcasts && ranks > 1 ? ranks - 1 : 1);
  return link.latency_s * rounds_of(kind, ranks) * static_cast<double>(calls) + link.seconds_per_byte * sent;
}

double GivenDurations::compute(const Program& program, const gsel_instr& instr) const {
  const InstrRow& row = instr_row(instr.kind);
  if (row.task == InstrTask::step) {
    const gsel_range own = own_shard(program, instr.bucket);
    return step_seconds_per_element * static_cast<double>(own.end - own.begin);
  }
  if (instr.layer < 0 || static_cast<size_t>(instr.layer) >= layers.size()) return 0;
  const OfLayer& layer = layers[static_cast<size_t>(instr.layer)];
  if (row.task == InstrTask::forward) return layer.forward;
  return (row.input_half ? layer.backward_input : 0) + (row.weight_half ? layer.backward_weight : 0);
}

ExchangeTime GivenDurations::exchange(const Program& program, const gsel_instr& instr, gsel_axis axis, uint64_t calls,
                                      uint64_t bytes) const {
  return {ring_seconds(links[static_cast<size_t>(axis)], instr.kind, program.mesh.size[axis], calls, bytes), 0};
}

ExchangeTime GivenDurations::message(const Program&, int32_t, int64_t bytes) const {
  const LinkTime& link = links[GSEL_AXIS_PIPELINE];
  return {link.latency_s + link.seconds_per_byte * static_cast<double>(bytes), 0};
}

}  // namespace gsel
