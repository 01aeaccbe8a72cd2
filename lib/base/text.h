// base/text.h: conversion between gsel_str and C++ text, character tests, numbers with nouns and units, foreign text in
// one-line messages, and "did you mean".
#pragma once

#include <gsel/types.h>

#include <concepts>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace gsel {

// The text of a gsel_str; empty when it has none.
inline std::string_view view(gsel_str s) {
  if (!s.data) return {};
  return {s.data, s.len == GSEL_NUL ? std::strlen(s.data) : s.len};
}
inline std::string text(gsel_str s) {
  return std::string(view(s));
}
inline bool given(gsel_str s) {
  return s.data != nullptr;
}

// A gsel_str that borrows the text; std::string keeps it NUL-terminated for C callers.
inline gsel_str borrow(const std::string& s) {
  return {s.c_str(), s.size()};
}
gsel_str borrow(std::string&&) = delete;

constexpr bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// A device for which the host may stand in: "cuda | cpu" is cuda, else the host. Without such a part the device is the
// text.
struct DeviceWish {
  std::string_view device;
  bool or_host = false;
};
DeviceWish device_wish(std::string_view text);

// `text` without blanks at both ends.
inline std::string_view trimmed(std::string_view text, std::string_view blanks = " \t") {
  const size_t first = text.find_first_not_of(blanks);
  return first == text.npos ? std::string_view() : text.substr(first, text.find_last_not_of(blanks) - first + 1);
}

// "1 rank", "2 ranks", "8 processes", "0 entries".
std::string noun_text(int64_t n, std::string_view noun);
inline std::string with_noun(std::integral auto n, std::string_view noun) {
  return noun_text(static_cast<int64_t>(n), noun);
}

// "0.3 s": with as many digits as a person writes.
std::string seconds_text(double seconds);

// `text` in double quotes: control characters, quotes and backslashes escaped, cut after `most` bytes.
std::string in_quotes(std::string_view text, size_t most = 60);

// `text` on one line: each control character becomes a blank, blanks at the end are removed.
std::string one_line(std::string_view text);

// The number of insertions, deletions and replacements that turn a into b.
int edit_distance(std::string_view a, std::string_view b);

// The nearest of `known`, the first among equals; empty when none is near enough.
std::string nearest(std::string_view word, const std::vector<std::string_view>& known);

}  // namespace gsel
