// train/compile/idle_settings.h: finds settings of the file that change nothing for this model on these ranks. Does not
// know how they are reported.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "train/compile/pass.h"

namespace gsel {

// local: of rank 0; programs: of its pipeline at least, the first is its own. A line for each: file, line and key, what
// was found, what to set.
std::vector<std::string> idle_settings(const Model& described, const Config& config, const Model& local,
                                       std::span<const Program> programs);

}  // namespace gsel
