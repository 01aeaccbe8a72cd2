// base/text.cc: see text.h.
#include "base/text.h"

#include <fmt/format.h>

#include <cmath>

namespace gsel {

std::string noun_text(int64_t n, std::string_view noun) {
  std::string text = fmt::format("{} {}", n, noun);
  if (n == 1 || noun.empty()) return text;
  const auto ends = [&](std::string_view end) { return noun.ends_with(end); };
  const bool consonant = noun.size() > 1 && std::string_view("aeiou").find(noun[noun.size() - 2]) == noun.npos;
  if (ends("y") && consonant) {
    text.back() = 'i';
    return text + "es";
  }
  return text + (ends("s") || ends("x") || ends("ch") || ends("sh") ? "es" : "s");
}

std::string seconds_text(double seconds) {
  if (std::abs(seconds) >= 1e6) return fmt::format("{:.0f} s", seconds);
  return fmt::format("{:.6g} s", seconds);
}

}  // namespace gsel
