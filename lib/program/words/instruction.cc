// program/words/instruction.cc: prints an instruction, and its place in a program: see program.h.
#include "base/axis.h"
#include "base/text.h"
#include "program/program.h"

namespace gsel {

std::string to_text(const Program& program, const gsel_instr& instr) {
  const InstrForm* form = form_of(instr.kind);
  if (!form) return fmt::format("unknown kind={}", instr.kind);
  std::string text = form->word;
  if (form->layer) text += " layer=" + program.layers[instr.layer].name;
  if (form->value) text += " value=" + program.values[instr.value].name;
  if (form->microbatch) text += fmt::format(" mb={}", instr.microbatch);
  if (form->bucket) text += fmt::format(" bucket={}", instr.bucket);
  if (form->axis) text += fmt::format(" axis={}", axis_name(instr.axis));
  if (form->peer) text += fmt::format(" {}={}", form->peer, instr.peer);
  if (instr.flags & GSEL_INSTR_GRADIENT) text += " gradient";
  if (instr.flags & GSEL_INSTR_OPTIMISTIC) text += " optimistic";
  return text;
}

std::string where(const Program& program, bool in_setup, size_t position) {
  const gsel_instr& instr = (in_setup ? program.setup : program.step)[position];
  const size_t line = (in_setup ? 0 : program.setup.size()) + position;
  return fmt::format("rank {}, {} instruction {}{}: {}", program.rank, in_setup ? "setup" : "step", position,
                     line < program.lines.size() ? fmt::format(" (line {})", program.lines[line]) : "",
                     to_text(program, instr));
}

}  // namespace gsel
