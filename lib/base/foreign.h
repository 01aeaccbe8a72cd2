// base/foreign.h: calls into code that is not ours: callbacks and plugins. C code answers with a status; C++ code may
// throw although it must not, and the exception ends here.
#pragma once

#include <exception>
#include <string>
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

}  // namespace gsel
