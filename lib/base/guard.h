// base/guard.h: the boundary between C++ and its callers. Every extern "C" body and every function of the built-in
// devices and transports runs inside guard(), which turns exceptions into a status and an error object.
#pragma once

#include <utility>

#include "base/error.h"

namespace gsel {

template <class Body>
gsel_status guard(gsel_error** err, Body&& body) noexcept {
  if (err) *err = nullptr;
  try {
    std::forward<Body>(body)();
    return GSEL_OK;
  } catch (...) {
    gsel_error* handle = current_exception_to_handle();
    const gsel_status status = code_of(handle);
    if (err)
      *err = handle;
    else
      free_handle(handle);
    return status;
  }
}

// For queries without an error argument: returns the fallback when the body throws.
template <class T, class Body>
T query(T fallback, Body&& body) noexcept {
  try {
    return std::forward<Body>(body)();
  } catch (...) {
    return fallback;
  }
}

// A required argument; `name` is the parameter's name in the header.
template <class T>
T& required(T* pointer, const char* name) {
  if (!pointer) fail(GSEL_ERR_ARG, "{} is NULL", name);
  return *pointer;
}

}  // namespace gsel
