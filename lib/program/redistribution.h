// program/redistribution.h: which collective changes a value from one placement to another. Forward goes from the
// input's placement to the output's. Backward goes from the dual of the output's placement to the dual of the input's;
// the dual of a placement is the placement of the gradient.
#pragma once

#include "base/shard.h"
#include "program/program.h"

namespace gsel {

enum class Redistribution : uint8_t {
  none,            // same memory
  allreduce,       // partial to replicate
  allgather,       // shard to replicate
  reduce_scatter,  // partial to shard
  slice,           // replicate to shard: each rank keeps its shard, no communication
  alltoall,        // shard to shard along another dimension
};

// The placement of the gradient of a value with this placement.
constexpr Placement dual(Placement placement) {
  return placement == Placement::copy      ? Placement::partial
         : placement == Placement::partial ? Placement::replicate
                                           : placement;
}

// A copy counts as replicated.
constexpr Redistribution redistribution(Placement from, Placement to) {
  const bool to_shard = to == Placement::shard;
  if (from == Placement::partial)
    return to_shard                   ? Redistribution::reduce_scatter
           : to == Placement::partial ? Redistribution::none
                                      : Redistribution::allreduce;
  if (from == Placement::shard) return to_shard ? Redistribution::alltoall : Redistribution::allgather;
  return to_shard ? Redistribution::slice : Redistribution::none;
}

constexpr Redistribution forward_redistribution(Placement from, Placement to) {
  return redistribution(from, to);
}
constexpr Redistribution backward_redistribution(Placement from, Placement to) {
  return redistribution(dual(to), dual(from));
}

constexpr bool communicates(Redistribution redistribution) {
  return redistribution != Redistribution::none && redistribution != Redistribution::slice;
}

// The redistribution of an instruction; `none` if its layer does not redistribute.
inline Redistribution redistribution_of(const Program& program, const ProgramLayer& layer, gsel_instr_kind kind) {
  if (!layer.redistributes) return Redistribution::none;
  const Placement from = program.values[layer.inputs.front()].placement,
                  to = program.values[layer.outputs.front()].placement;
  const InstrRow& row = instr_row(kind);
  if (row.task == InstrTask::forward) return forward_redistribution(from, to);
  return row.input_half ? backward_redistribution(from, to) : Redistribution::none;
}

}  // namespace gsel
