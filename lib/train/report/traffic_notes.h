// train/report/traffic_notes.h: reports to people, before the first step, what a step will send.
#pragma once

#include <string>
#include <vector>

#include "program/program.h"

namespace gsel {

// A line for the axes along which the program's rank sends, and one where gradients in shards are reduced more often
// than once, as in a pipeline, with what whole gradients would send instead. None where nothing is sent.
std::vector<std::string> traffic_notes(const Program& program);

}  // namespace gsel
