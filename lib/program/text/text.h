// program/text/text.h: whole programs as text (docs/program.md), and as a table for users.
#pragma once

#include <string>
#include <string_view>

#include "program/program.h"

namespace gsel {

std::string to_text(const Program& program);
// file: for messages. GSEL_ERR_PARSE at the word.
Program parse_program(std::string_view text, const std::string& file);
// The placements of parameters and values on the sharing axis, and the redistributions between them.
std::string placements_table(const Program& program);

}  // namespace gsel
