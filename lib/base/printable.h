// base/printable.h: makes foreign text safe for one-line messages.
#pragma once

#include <string>
#include <string_view>

namespace gsel {

// `text` in double quotes: control characters, quotes and backslashes escaped, cut after `most` bytes.
std::string in_quotes(std::string_view text, size_t most = 60);

// `text` on one line: each control character becomes a blank, blanks at the end are removed.
std::string one_line(std::string_view text);

}  // namespace gsel
