// base/options.h: how public structs grow. Each begins with its size. A shorter struct comes from an older caller, and
// its missing fields are zero. A longer one is accepted when the bytes that this version does not know are zero.
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "base/version.h"

namespace gsel {

// The gsel_<type>_init functions. The caller states the size of its struct: an older caller has less room than the
// current type, a newer one expects its whole struct to be cleared. Nothing is written if the struct is too small to
// store the size.
template <class T>
void init_struct(T* s, size_t struct_size) noexcept {
  if (!s || struct_size < 2 * sizeof(uint32_t) || struct_size > UINT32_MAX) return;
  std::memset(static_cast<void*>(s), 0, struct_size);
  s->struct_size = static_cast<uint32_t>(struct_size);
}

// The size that a caller's struct states; an error when the struct was not initialised.
template <class T>
uint32_t stated_size(const T* given, const char* type) {
  if (!given) fail(GSEL_ERR_ARG, "{} is NULL", type);
  if (given->struct_size < 2 * sizeof(uint32_t))
    fail(GSEL_ERR_VERSION,
         "{}.struct_size is {}, this libgsel knows {} bytes; initialise it with its _INIT macro or _init function",
         type, given->struct_size, sizeof(T));
  return given->struct_size;
}

// Reserved fields must be zero, so that a later version can give them a meaning.
template <class T>
void check_reserved(const T& given, const char* type, gsel_status code = GSEL_ERR_ARG) {
  const auto check = [&](auto value, const char* field) {
    if (value != 0)
      fail(code, "{}.{} is {}; it must be 0, as the struct's _INIT macro or _init function leaves it", type, field,
           value);
  };
  if constexpr (requires { given.reserved; }) check(given.reserved, "reserved");
  if constexpr (requires { given.reserved2; }) check(given.reserved2, "reserved2");
}

// `name` is the struct and its field.
inline void check_flags(uint32_t flags, uint32_t known, const char* name) {
  if (flags & ~known) fail(GSEL_ERR_ARG, "{} is {:#x}, known are {:#x}", name, flags, known);
}

// Copies the caller's struct to a struct of the current size; `type` names it in messages.
template <class T>
T read_struct(const T* given, const char* type) {
  const uint32_t size = stated_size(given, type);
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  if (size > sizeof(T) && std::any_of(bytes + sizeof(T), bytes + size, [](unsigned char b) { return b != 0; }))
    fail(GSEL_ERR_VERSION,
         "{} has {} bytes with fields set that this libgsel {} ({} bytes) does not know; update libgsel", type, size,
         kVersionText, sizeof(T));
  T full{};
  std::memcpy(&full, given, std::min<size_t>(size, sizeof(T)));
  full.struct_size = sizeof(T);
  check_reserved(full, type);
  return full;
}

// Reads a caller's array. Each struct states the same size, which is the distance from one struct to the next.
template <class T>
std::vector<T> read_structs(const T* given, int32_t n, const char* type) {
  std::vector<T> all;
  const auto* at = reinterpret_cast<const unsigned char*>(given);
  for (int32_t i = 0; i < n; ++i, at += given->struct_size) {
    const T* one = reinterpret_cast<const T*>(at);
    if (one->struct_size != given->struct_size)
      fail(GSEL_ERR_VERSION,
           "{}s of an array state {} and {} bytes; initialise each with its _INIT macro or _init function", type,
           given->struct_size, one->struct_size);
    all.push_back(read_struct(one, type));
  }
  return all;
}

// Checks index i of a list with `count` entries.
inline void check_index(int32_t i, size_t count, const char* name) {
  if (i < 0 || static_cast<size_t>(i) >= count)
    fail(GSEL_ERR_ARG, "{} is {}; {}", name, i,
         count ? fmt::format("expected 0 to {}", count - 1) : std::string("there are none"));
}

// Copies as much of `value` as the caller's struct has room for; its struct_size stays.
template <class T>
void write_struct(T* out, const T& value, const char* type) {
  const uint32_t size = stated_size(out, type);
  std::memcpy(out, &value, std::min<size_t>(size, sizeof(T)));
  out->struct_size = size;
}

}  // namespace gsel
