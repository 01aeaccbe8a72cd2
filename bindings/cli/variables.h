// variables.h: which variables of our environment the ranks on other hosts get. Does not know: how.
#pragma once

#include <string>
#include <vector>

namespace gsel::cli {

// NAME=VALUE of those that libraries of parallel programs read, as far as they mean the same on every host.
std::vector<std::string> chosen_environment();

// Of -x: NAME=VALUE as it stands; NAME with the value that it has here; NAME* all that begin so. Refuses what is not
// there.
std::vector<std::string> exported(const std::vector<std::string>& names);

}  // namespace gsel::cli
