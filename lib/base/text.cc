// base/text.cc: see text.h.
#include "base/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace gsel {

DeviceWish device_wish(std::string_view text) {
  const size_t bar = text.rfind('|');
  if (bar == text.npos || trimmed(text.substr(bar + 1)) != "cpu") return {text};
  const std::string_view device = trimmed(text.substr(0, bar));
  return device.empty() || device == "cpu" ? DeviceWish{text} : DeviceWish{device, true};
}

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

int edit_distance(std::string_view a, std::string_view b) {
  std::vector<int> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 1; i <= a.size(); ++i) {
    int diagonal = row[0];
    row[0] = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const int replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

std::string nearest(std::string_view word, const std::vector<std::string_view>& known) {
  constexpr size_t kLongest = 100;  // no misspelling of a known word is longer
  if (word.empty() || word.size() > kLongest) return {};
  std::string_view best;
  int best_distance = 1 + static_cast<int>(std::max<size_t>(word.size() / 4, word.size() > 2 ? 2 : 1));
  for (std::string_view candidate : known) {
    const int distance = edit_distance(word, candidate);
    if (distance < best_distance) best = candidate, best_distance = distance;
  }
  return std::string(best);
}

}  // namespace gsel
