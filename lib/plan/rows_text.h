// plan/rows_text.h: text helpers shared by the files of rows.h. Does not know rows.
#pragma once

#include <cctype>
#include <string>
#include <string_view>

namespace gsel::plan {

inline bool mentions(const std::string& text, std::string_view word) {
  return text.find(word) != text.npos;
}

inline std::string lowered(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

}  // namespace gsel::plan
