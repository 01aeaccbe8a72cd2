// usage.cc: see usage.h.
#include "usage.h"

#include <charconv>
#include <cstdio>
#include <limits>
#include <vector>

#include "client.h"

namespace gsel::cli {

bool is_count(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == text.npos;
}

int64_t whole_number(const std::string& option, const std::string& text) {
  int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, value);
  if (result.ec == std::errc::invalid_argument || result.ptr != end)
    refuse(GSEL_ERR_ARG, option + " " + text + ": a whole number is needed");
  if (result.ec != std::errc())
    return text[0] == '-' ? std::numeric_limits<int64_t>::min() : std::numeric_limits<int64_t>::max();
  return value;
}

double seconds(const std::string& option, const std::string& text, double least, double most) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, value);
  if (result.ec == std::errc() && result.ptr == end && value >= least && value <= most) return value;
  char range[96];
  std::snprintf(range, sizeof range, ": seconds from %g to %g are needed", least, most);
  refuse(GSEL_ERR_ARG, option + " " + text + range);
}

int64_t number_from(const std::string& option, const std::string& text, int64_t least, int64_t most) {
  const int64_t number = whole_number(option, text);
  if (number < least || number > most)
    refuse(GSEL_ERR_ARG,
           option + " " + text + ": " + std::to_string(least) + " to " + std::to_string(most) + " are allowed");
  return number;
}

uint64_t byte_count(const std::string& option, const std::string& text) {
  const std::string units = "KMG";
  std::string digits = text;
  uint64_t unit = 1;
  if (!digits.empty() && units.find(digits.back()) != units.npos) {
    unit <<= 10 * (units.find(digits.back()) + 1);
    digits.pop_back();
  }
  const int64_t number = whole_number(option, digits.empty() ? text : digits);
  constexpr int64_t kMost = int64_t{1} << 40;
  if (number < 1 || number > kMost / static_cast<int64_t>(unit))
    refuse(GSEL_ERR_ARG, option + " " + text + ": bytes from 1 to 1024G are needed, such as 64M");
  return static_cast<uint64_t>(number) * unit;
}

}  // namespace gsel::cli
