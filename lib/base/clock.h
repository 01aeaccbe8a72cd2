// base/clock.h: seconds on a clock that only goes forward.
#pragma once

#include <chrono>

namespace gsel {

inline double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace gsel
