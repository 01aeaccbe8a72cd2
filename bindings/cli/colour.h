// colour.h: colours in human-readable output: verdicts and warnings that should stand out. Does not know what is
// coloured.
#pragma once

#include <string>

namespace gsel::cli {

enum class Colour { good, bad, warning, faint };

// The value of --color: "auto", "always" or "never". auto: on a terminal, unless NO_COLOR is set or TERM is dumb.
void set_colours(const std::string& when);

// For standard output (1), where print writes, or standard error (2).
std::string coloured(Colour colour, const std::string& text, int descriptor = 1);

// "gsel: ", before an error or a warning.
std::string error_prefix();
std::string warning_prefix();

}  // namespace gsel::cli
