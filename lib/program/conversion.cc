// program/conversion.cc: see conversion.h.
#include "program/conversion.h"

namespace gsel {

Conversion conversion_of(const Program& program, const ProgramLayer& layer, gsel_instr_kind kind) {
  if (!layer.converts) return Conversion::same;
  const Form from = program.values[layer.inputs.front()].form, to = program.values[layer.outputs.front()].form;
  switch (kind) {
    case GSEL_INSTR_FORWARD:
    case GSEL_INSTR_RECOMPUTE:
      return forward_conversion(from, to);
    case GSEL_INSTR_BACKWARD:
    case GSEL_INSTR_BACKWARD_INPUT:
      return backward_conversion(from, to);
    default:
      return Conversion::same;
  }
}

}  // namespace gsel
