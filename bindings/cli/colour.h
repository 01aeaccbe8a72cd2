// colour.h: colours of what is printed for people: verdicts and warnings, where they are to be seen at a glance. Does
// not know: what is coloured.
#pragma once

#include <string>

namespace gsel::cli {

enum class Colour { good, bad, warning, faint };

// "auto", "always" or "never", as --color has it. auto: on a terminal, unless NO_COLOR is set or TERM is dumb.
void set_colours(const std::string& when);

// For standard output (1), where print goes, or standard error (2).
std::string coloured(Colour colour, const std::string& text, int descriptor = 1);

// "gsel: ", before an error or a warning.
std::string error_prefix();
std::string warning_prefix();

}  // namespace gsel::cli
