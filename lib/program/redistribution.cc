// program/redistribution.cc: see redistribution.h.
#include "program/redistribution.h"

namespace gsel {

Redistribution redistribution_of(const Program& program, const ProgramLayer& layer, gsel_instr_kind kind) {
  if (!layer.redistributes) return Redistribution::none;
  const Placement from = program.values[layer.inputs.front()].placement,
                  to = program.values[layer.outputs.front()].placement;
  switch (kind) {
    case GSEL_FORWARD:
    case GSEL_INSTR_RECOMPUTE:
      return forward_redistribution(from, to);
    case GSEL_BACKWARD:
    case GSEL_BACKWARD_INPUT:
      return backward_redistribution(from, to);
    default:
      return Redistribution::none;
  }
}

}  // namespace gsel
