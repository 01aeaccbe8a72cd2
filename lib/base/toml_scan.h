// base/toml_scan.h: checks a TOML text before it is parsed. The parser's test for white space is undefined for many
// non-ASCII characters, and the parser makes a nested table for each dot of a key, which takes stack. Does not know
// what the text means.
#pragma once

#include <string>
#include <string_view>

namespace gsel {

// The most parts of a dotted key. Each part is a table inside the one before.
constexpr int kMostKeyParts = 9;

// Throws GSEL_ERR_PARSE with line, column and token for
//   a non-ASCII character outside strings and comments, or in a multi-line string where the parser expects white space:
//   after a backslash, and at the beginning of a line that a backslash joins to the previous line;
//   a quote in a bare value, or a blank in a date, after which the parser would look for white space;
//   a key with more parts, or a value in more brackets, than any file needs.
// Line and column are counted as the parser counts. All other syntax errors are left to the parser.
void check_toml_text(std::string_view text, const std::string& file);

}  // namespace gsel
