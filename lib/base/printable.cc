// base/printable.cc: see printable.h.
#include "base/printable.h"

#include <fmt/format.h>

#include <algorithm>

namespace gsel {
namespace {

bool is_control(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte < 0x20 || byte == 0x7F;
}

}  // namespace

std::string in_quotes(std::string_view text, size_t most) {
  size_t end = std::min(text.size(), most);
  if (end < text.size())
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;  // never inside a UTF-8 sequence
  std::string out = "\"";
  for (char c : text.substr(0, end)) {
    if (c == '"' || c == '\\')
      out += fmt::format("\\{}", c);
    else if (is_control(c))
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    else
      out += c;
  }
  return out + (end < text.size() ? "...\"" : "\"");
}

std::string one_line(std::string_view text) {
  std::string line(text);
  std::replace_if(line.begin(), line.end(), is_control, ' ');
  while (!line.empty() && line.back() == ' ') line.pop_back();
  return line;
}

}  // namespace gsel
