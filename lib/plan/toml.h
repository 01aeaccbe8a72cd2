// plan/toml.h: a layout as a gsel.toml that `gsel run` takes as it is. Does not know models and devices.
#pragma once

#include <string>
#include <vector>

#include "plan/layout.h"
#include "plan/recipe.h"

namespace gsel::plan {

// What a file says beside the layout.
struct TomlNames {
  std::vector<std::string> cuts;       // first layers of stages 1, 2, ...; empty: left to the strategy
  std::vector<std::string> selective;  // layers that selective recomputation runs again
  std::string optimizer = "adamw";
  std::string head;  // comment lines above, without their #
};

// GSEL_ERR_ARG for a layout that no file can ask for: tensor and context axes both of several ranks, selective
// recomputation without names.
std::string toml_of(const Layout& layout, const Shares& shares, const Recipe& recipe, const TomlNames& names = {});

// The schedule that a layout asks for, as gsel/schedule.h calls it.
const char* schedule_of(const Layout& layout);

}  // namespace gsel::plan
