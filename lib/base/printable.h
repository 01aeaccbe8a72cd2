// base/printable.h: makes foreign text fit for one-line messages. Does not know where the text came from.
#pragma once

#include <string>
#include <string_view>

namespace gsel {

// `text` in double quotes: control characters, quotes and backslashes escaped, cut after `most` bytes.
std::string in_quotes(std::string_view text, size_t most = 60);

// `text` on one line: a blank for each control character, none at the end.
std::string one_line(std::string_view text);

}  // namespace gsel
