// support/tensor_maker.h: good programs with a tensor axis, made at random of good programs without one, by the rules
// of docs/program.md and not by what divides models: any layers have parts of any values and parameters, in parts of
// any size, and redistributions stand where placements differ.
#pragma once

#include <vector>

#include "program/program.h"
#include "support/draw.h"

namespace gsel::test {

// base: of all ranks, with a tensor axis of one rank. Redistributions stand in the stage of their readers, so that what
// goes from rank to rank stays.
std::vector<Program> divide_by_tensor(const std::vector<Program>& base, int32_t ranks, Draw& draw);

}  // namespace gsel::test
