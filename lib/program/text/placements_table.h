// program/text/placements_table.h: a table, for people, of the placements of parameters and values on the sharing axis
// and of the redistributions between them. The sharing axis is the tensor or the context axis, whichever has several
// ranks.
#pragma once

#include <string>

#include "program/program.h"

namespace gsel {

std::string placements_table(const Program& program);

}  // namespace gsel
