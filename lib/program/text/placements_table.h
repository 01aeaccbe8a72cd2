// program/text/placements_table.h: how parameters and values lie on the sharing axis, and what redistributes them, as
// a table for people.
#pragma once

#include <string>

#include "program/program.h"

namespace gsel {

std::string placements_table(const Program& program);

}  // namespace gsel
