// base/text.h: conversion between gsel_str and C++ text, character tests, and numbers with nouns and units.
#pragma once

#include <gsel/types.h>

#include <concepts>
#include <cstring>
#include <string>
#include <string_view>

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

}  // namespace gsel
