// base/toml_scan.h: checks a TOML text before the parser gets it. The parser's test for white space is undefined for
// many characters beyond ASCII, and it makes a nested table for every dot of a key, each of which takes stack. Does not
// know what the text means.
#pragma once

#include <string>
#include <string_view>

namespace gsel {

// A dotted key has at most so many parts. Each is a table in the one before.
constexpr int kMostKeyParts = 9;

// GSEL_ERR_PARSE with line, column and token for
//   a character beyond ASCII that stands neither in a string nor in a comment, or in a multi-line string where the
//   parser looks for white space: behind a backslash and at the beginning of a line that one has joined;
//   a quote in a bare value, and a blank in a date, behind which the parser would go on to look for white space;
//   a key of more parts, or values in more brackets, than any file needs.
// Line and column count as the parser's do. What is no TOML in another way is left to the parser.
void check_toml_text(std::string_view text, const std::string& file);

}  // namespace gsel
