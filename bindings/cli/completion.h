// completion.h: shell completion scripts for gsel, from the table of spec.h.
#pragma once

#include <string>

#include "manual.h"
#include "spec.h"

namespace gsel::cli {

std::string bash_completion(const CommandSpec& whole, const Commands& commands);
std::string zsh_completion(const CommandSpec& whole, const Commands& commands);
std::string fish_completion(const CommandSpec& whole, const Commands& commands);

}  // namespace gsel::cli
