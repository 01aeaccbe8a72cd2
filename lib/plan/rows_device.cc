// plan/rows_device.cc: see rows_device.h.
#include "plan/rows_device.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/text.h"
#include "plan/rows.h"

namespace gsel::plan {

std::optional<double> network_rate(const std::string& text, double devices) {
  std::optional<double> slowest;
  for (const std::string_view unit : {"gb/s", "gbps", "gbit/s"})
    for (size_t at = text.find(unit); at != text.npos; at = text.find(unit, at + 1)) {
      size_t end = at;
      while (end > 0 && text[end - 1] == ' ') --end;
      size_t begin = end;
      while (begin > 0 && (is_digit(text[begin - 1]) || text[begin - 1] == '.' || text[begin - 1] == 'x')) --begin;
      std::string_view number = std::string_view(text).substr(begin, end - begin);
      double adapters = 1, rate = 0;
      if (const size_t x = number.find('x'); x != number.npos) {
        std::from_chars(number.data(), number.data() + x, adapters);
        number.remove_prefix(x + 1);
      }
      if (std::from_chars(number.data(), number.data() + number.size(), rate).ec != std::errc() || !(rate > 0))
        continue;
      const bool each = std::string_view(text).substr(at + unit.size()).starts_with(" per gpu");
      const double bytes = adapters * rate * 1e9 / 8 * (each ? devices : 1);
      if (!slowest || bytes < *slowest) slowest = bytes;
    }
  return slowest;
}

NamedDevice named_device(std::string_view text) {
  NamedDevice out;
  const size_t paren = std::min(text.find('('), text.size());
  const std::string rest = lowered(text.substr(paren));
  out.name = std::string(trimmed(text.substr(0, paren)));
  if (const size_t at = lowered(out.name).find("-hbm2e"); at != std::string::npos) {
    out.slow_memory = true;
    out.name.erase(at, 6);
  }
  for (size_t i = 0; i + 1 < rest.size(); ++i)
    if (rest[i] == 'w' && i > 0 && is_digit(rest[i - 1])) {
      size_t begin = i;
      while (begin > 0 && is_digit(rest[begin - 1])) --begin;
      std::from_chars(rest.data() + begin, rest.data() + i, out.watts);
    }
  return out;
}

namespace {

constexpr double kH100Watts = 700, kH100Hbm2e = 2.4e12;

}  // namespace

DeviceKind device_of(std::string_view text) {
  const NamedDevice named = named_device(text);
  const Cluster one = cluster_of(named.name, {});
  DeviceKind kind = one.kinds[0];
  if (kind.device_class == "h100") {
    if (named.slow_memory) kind.memory_bytes_per_second = std::min(kind.memory_bytes_per_second, kH100Hbm2e);
    // Clocks follow the power limit by less than its cube root; the fourth root is exact, as two square roots.
    if (named.watts > 0 && named.watts < kH100Watts)
      kind.matmul_share *= std::sqrt(std::sqrt(named.watts / kH100Watts));
  }
  return kind;
}

std::vector<std::string_view> joined(std::string_view text) {
  std::vector<std::string_view> out;
  while (true) {
    const size_t plus = std::min(text.find('+'), text.size());
    out.push_back(trimmed(text.substr(0, plus)));
    if (plus == text.size()) return out;
    text.remove_prefix(plus + 1);
  }
}

std::vector<std::vector<std::string>> list_of_lists(std::string_view note) {
  std::vector<std::vector<std::string>> out;
  const size_t begin = note.find("[[");
  if (begin == note.npos) return out;
  std::string word;
  bool inside = false;
  for (const char c : note.substr(begin + 1)) {
    if (c == '[') {
      out.emplace_back();
      inside = true;
    } else if (inside && (c == ',' || c == ']')) {
      const std::string_view bare = trimmed(word, " \t'\"");
      if (!bare.empty()) out.back().emplace_back(bare);
      word.clear();
      inside = c == ',';
    } else if (inside) {
      word += c;
    } else if (c == ']') {
      break;
    }
  }
  std::erase_if(out, [](const auto& inner) { return inner.empty(); });
  return out;
}

int32_t named_kind(const std::string& word, const std::vector<std::string_view>& names, bool from_one) {
  int32_t number = 0;
  const auto n = static_cast<int32_t>(names.size());
  const auto result = std::from_chars(word.data(), word.data() + word.size(), number);
  number -= from_one ? 1 : 0;
  if (result.ec == std::errc() && result.ptr == word.data() + word.size() && number >= 0 && number < n) return number;
  for (int32_t i = 0; i < n; ++i)
    if (lowered(names[i]) == lowered(word)) return i;
  for (int32_t i = 0; i < n; ++i)
    if (mentions(lowered(names[i]), lowered(word)) || mentions(lowered(word), lowered(names[i]))) return i;
  return -1;
}

}  // namespace gsel::plan
