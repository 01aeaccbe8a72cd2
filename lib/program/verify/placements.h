// program/verify/placements.h: checks the placements of parameters and values on the sharing axis: that the layers that
// read and write them make every sum exactly once. Needs outlines only; does not know the order of instructions.
#pragma once

#include <span>

#include "program/program.h"

namespace gsel {

// What a layer that redistributes has; GSEL_ERR_PROGRAM where it is not one value with one placement, and the same
// with another.
void check_redistribution(const Program& program, const ProgramLayer& layer);

// The outlines of the ranks that share layers, in order of their coordinates on the sharing axis.
void check_sharing_outlines(std::span<const Program* const> programs);

}  // namespace gsel
