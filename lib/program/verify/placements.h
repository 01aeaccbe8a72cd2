// program/verify/placements.h: how parameters and values lie on the tensor axis, and whether the layers that touch them
// are such that every sum is made, once. Of outlines alone: does not know the order of instructions.
#pragma once

#include <span>

#include "program/program.h"

namespace gsel {

// What a layer that redistributes has; GSEL_ERR_PROGRAM where it is not one value in one form, and the same in another.
void check_redistribution(const Program& program, const ProgramLayer& layer);

// The outlines of the ranks of a tensor axis, in order of their places.
void check_places(std::span<const Program* const> programs);

}  // namespace gsel
