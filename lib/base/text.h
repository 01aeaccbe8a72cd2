// base/text.h: conversion between gsel_str and C++ text.
#pragma once

#include <gsel/types.h>

#include <cstring>
#include <string>
#include <string_view>

namespace gsel {

// The text behind a gsel_str; empty when not given.
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

// A gsel_str that borrows; std::string keeps it NUL-terminated for C callers.
inline gsel_str borrow(const std::string& s) {
  return {s.c_str(), s.size()};
}
gsel_str borrow(std::string&&) = delete;

}  // namespace gsel
