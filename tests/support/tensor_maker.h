// support/tensor_maker.h: good programs with a tensor axis, made at random from valid programs without one, by the
// rules of docs/program.md and not by the library's division of models: any layers have parts of any values and
// parameters, in parts of any size, and redistributions stand where placements differ.
#pragma once

#include <vector>

#include "program/program.h"
#include "support/draw.h"

namespace gsel::test {

// base: of all ranks, with a tensor axis of one rank. Redistributions are in the stage of their readers, so that the
// messages between ranks stay the same.
std::vector<Program> divide_by_tensor(const std::vector<Program>& base, int32_t ranks, Draw& draw);

}  // namespace gsel::test
