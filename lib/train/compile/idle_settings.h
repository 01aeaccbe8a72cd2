// train/compile/idle_settings.h: finds settings in the file that change nothing for this model on these ranks: those of
// the core, and those that strategies report. Does not know how they are reported.
#pragma once

#include <string>
#include <vector>

#include "train/compile/pass.h"

namespace gsel {

// program: of rank 0, as compiled. One line per setting: file, line, key, why it has no effect, and what to set.
std::vector<std::string> idle_settings(const Compiler& compiler, const Model& described, const Program& program);

}  // namespace gsel
