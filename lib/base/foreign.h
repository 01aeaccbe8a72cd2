// base/foreign.h: calls into foreign code: callbacks and plugins. C code returns a status. C++ code may throw although
// it must not; the exception ends here.
#pragma once

#include <exception>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"

namespace gsel {

// The status of `call`; `when_thrown` if it threw, with what it said in `thrown`.
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

// Why a callback failed: what it said, else the name of its code. A code that is not of GSEL_ERROR_LIST, such as a
// positive one, is the embedder's own and told as a number.
std::string reason_of(gsel_status status, std::string_view said);

}  // namespace gsel
