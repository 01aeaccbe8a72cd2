// select/words/tokens.cc: see tokens.h.
#include "select/words/tokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <limits>

#include "base/text.h"

namespace gsel {
namespace {

constexpr std::string_view kBlanks = " \t";
constexpr size_t kMaxShown = 120;

}  // namespace

std::string printable(std::string_view text) {
  std::string out;
  for (unsigned char c : text.substr(0, kMaxShown)) {
    if (c < 0x20 || c >= 0x7f)
      out += fmt::format("\\x{:02x}", c);
    else
      out += static_cast<char>(c);
  }
  return text.size() > kMaxShown ? out + "..." : out;
}

std::string Input::shown() const {
  return fmt::format("{}={}", name, printable(value));
}

std::vector<Token> split_list(const Input& input, size_t from) {
  const std::string_view text = input.value;
  std::vector<Token> tokens;
  for (;;) {
    const size_t comma = std::min(text.find(',', from), text.size());
    const std::string_view part = text.substr(from, comma - from);
    const size_t first = std::min(part.find_first_not_of(kBlanks), part.size());
    const size_t last = part.find_last_not_of(kBlanks);
    Token token;
    if (first < part.size()) token.text = part.substr(first, last - first + 1);
    token.column = static_cast<int32_t>(from + (token.text.empty() ? 0 : first)) + 1;
    token.blank_before = first > 0;
    tokens.push_back(std::move(token));
    if (comma == text.size()) return tokens;
    from = comma + 1;
  }
}

bool is_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == text.npos;
}

int64_t number_of(std::string_view text) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  int64_t value = 0;
  for (char c : text) {
    const int digit = c - '0';
    value = value > (kMax - digit) / 10 ? kMax : value * 10 + digit;
  }
  return value;
}

bool is_uuid_form(std::string_view text) {
  const std::string head = lower_case(text.substr(0, 4));
  return head == "gpu-" || head == "mig-";
}

std::string lower_case(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

void refuse(gsel_status code, const Input& input, const Token& token, const std::string& what) {
  const bool whole = token.text == input.value;
  const std::string where =
      whole ? std::string() : fmt::format("\"{}\" at column {}: ", printable(token.text), token.column);
  throw Error(code, fmt::format("{}: {}{}", input.shown(), where, what)).at({input.name, 0, token.column, token.text});
}

// ---- tables ---------------------------------------------------------------------------------------------------------

namespace {

// Counts characters rather than bytes, so that UTF-8 names do not shift the columns.
size_t width(const std::string& text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

}  // namespace

std::string Table::text() const {
  std::vector<size_t> widths;
  for (const auto& row : rows_) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width(row[i]));
  }
  std::string out;
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) {
      out += row[i];
      if (i + 1 < row.size()) out.append(widths[i] - width(row[i]) + 2, ' ');
    }
    out += '\n';
  }
  return out;
}

std::string bytes_text(uint64_t bytes) {
  if (bytes == 0) return "-";
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < std::size(kUnits); ++unit) value /= 1024;
  return unit ? fmt::format("{:.1f} {}", value, kUnits[unit]) : fmt::format("{} B", bytes);
}

}  // namespace gsel
