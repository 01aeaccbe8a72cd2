// train/report/traffic_notes.h: a report for the user, before the first step, of what a step will send.
#pragma once

#include <string>
#include <vector>

#include "program/program.h"

namespace gsel {

// One line for the axes on which the program's rank sends. One line if sharded gradients are reduced more than once per
// step, as in a pipeline, with what whole gradients would send. Empty if nothing is sent.
std::vector<std::string> traffic_notes(const Program& program);

}  // namespace gsel
