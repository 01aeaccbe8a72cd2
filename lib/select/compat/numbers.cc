// select/compat/numbers.cc: see numbers.h.
#include "select/compat/numbers.h"

#include <algorithm>

#include "base/text.h"

namespace gsel {
namespace {

constexpr std::string_view kWhite = " \t\n\v\f\r\x1c\x1d\x1e\x1f";

}  // namespace

std::vector<Token> split_fields(std::string_view text, char separator) {
  std::vector<Token> fields;
  for (size_t from = 0;;) {
    const size_t end = std::min(text.find(separator, from), text.size());
    fields.push_back({std::string(text.substr(from, end - from)), static_cast<int32_t>(from) + 1, false});
    if (end == text.size()) return fields;
    from = end + 1;
  }
}

std::vector<Token> split_lines(std::string_view text, char separator) {
  std::vector<Token> fields = split_fields(text, separator);
  if (fields.back().text.empty()) fields.pop_back();
  return fields;
}

std::string_view stripped(std::string_view text) {
  const size_t first = std::min(text.find_first_not_of(kWhite), text.size());
  text.remove_prefix(first);
  return text.substr(0, text.find_last_not_of(kWhite) + 1);
}

Leading leading_number(std::string_view text) {
  const bool sign = !text.empty() && (text[0] == '+' || text[0] == '-');
  size_t end = sign ? 1 : 0;
  while (end < text.size() && is_digit(text[end])) ++end;
  Leading out;
  if (end == 0) return out;
  if (sign && end == 1) {
    out.kind = Leading::Kind::sign_alone;
    return out;
  }
  out.kind = Leading::Kind::number;
  std::string_view digits = text.substr(sign ? 1 : 0, end - (sign ? 1 : 0));
  digits.remove_prefix(std::min(digits.find_first_not_of('0'), digits.size() - 1));
  out.digits = digits;
  out.value = number_of(digits);
  out.negative = text[0] == '-' && digits != "0";
  return out;
}

Fate kept(std::string became, std::string rule) {
  return {Fate::What::kept, std::move(became), std::move(rule)};
}
Fate skipped(std::string rule) {
  return {Fate::What::skipped, "nothing", std::move(rule)};
}
Fate ends(std::string rule) {
  return {Fate::What::ends, "the end of the list", std::move(rule)};
}
Fate voids(std::string rule) {
  return {Fate::What::voids, "no device at all", std::move(rule)};
}

}  // namespace gsel
