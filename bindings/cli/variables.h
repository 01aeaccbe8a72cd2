// variables.h: which variables of our environment are passed to ranks on other hosts.
#pragma once

#include <string>
#include <vector>

namespace gsel::cli {

// NAME=VALUE of variables that parallel libraries read, if they mean the same on every host.
std::vector<std::string> chosen_environment();

// The variables of -x: NAME=VALUE unchanged; NAME with its value here; NAME* for all that begin so. Refuses variables
// that do not exist.
std::vector<std::string> exported(const std::vector<std::string>& names);

}  // namespace gsel::cli
