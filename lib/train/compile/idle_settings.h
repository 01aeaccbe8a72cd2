// train/compile/idle_settings.h: settings of the file that change nothing for this model on these ranks. Refuses to
// know how they are told.
#pragma once

#include <string>
#include <vector>

#include "train/compile/pass.h"

namespace gsel {

// A line for each: file, line and key, what was found, what would do.
std::vector<std::string> idle_settings(const Model& described, const Config& config, const CompiledRanks& ranks);

}  // namespace gsel
