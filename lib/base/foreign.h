// base/foreign.h: calls into foreign code: callbacks and plugins. C code returns a status. C++ code may throw although
// it must not; such an exception is caught here.
#pragma once

#include <exception>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"

namespace gsel {

// Returns the status of `call`, or `when_thrown` if it throws; `thrown` then has the text of the exception.
template <class Call>
gsel_status call_foreign(Call&& call, gsel_status when_thrown, std::string& thrown) {
  try {
    return std::forward<Call>(call)();
  } catch (const std::exception& e) {
    thrown = fmt::format("it threw an exception: {}", e.what());
  } catch (...) {
    thrown = "it threw an exception";
  }
  return when_thrown;
}

// Why a callback failed: `said`, the callback's own text, or else the name of its code. A code outside GSEL_ERROR_LIST,
// such as a positive one, is the embedder's own and is printed as a number.
std::string reason_of(gsel_status status, std::string_view said);

}  // namespace gsel
