// program/conversion.h: what it takes to bring a value from one form on the tensor axis to another. Forward goes from
// the form of the input to that of the output, backward from the dual of the output's to the dual of the input's.
#pragma once

#include "base/part.h"
#include "program/program.h"

namespace gsel {

enum class Conversion : uint8_t {
  same,      // nothing: both are the same memory
  sum,       // partial to whole: all-reduce
  gather,    // part to whole: all-gather
  scatter,   // partial to part: reduce-scatter
  slice,     // whole to part: each keeps its own, nothing is sent
  exchange,  // part to part along another dimension: all-to-all
};

// Of the gradient of a value in this form.
constexpr Form dual(Form form) {
  return form == Form::spread ? Form::partial : form == Form::partial ? Form::whole : form;
}

// A spread value is whole.
constexpr Conversion conversion(Form from, Form to) {
  const bool to_part = to == Form::part;
  if (from == Form::partial)
    return to_part ? Conversion::scatter : to == Form::partial ? Conversion::same : Conversion::sum;
  if (from == Form::part) return to_part ? Conversion::exchange : Conversion::gather;
  return to_part ? Conversion::slice : Conversion::same;
}

constexpr Conversion forward_conversion(Form from, Form to) {
  return conversion(from, to);
}
constexpr Conversion backward_conversion(Form from, Form to) {
  return conversion(dual(to), dual(from));
}

constexpr bool communicates(Conversion conversion) {
  return conversion != Conversion::same && conversion != Conversion::slice;
}

// What an instruction of a layer that converts does; `same` where it has nothing to do.
Conversion conversion_of(const Program& program, const ProgramLayer& layer, gsel_instr_kind kind);

}  // namespace gsel
