// base/uninterrupted.h: system calls that a signal may interrupt before they have done anything.
#pragma once

#include <cerrno>

namespace gsel {

// Repeats `call` until no signal interrupts it; returns its result, which is -1 with errno for another error.
template <class Call>
auto uninterrupted(Call call) {
  for (;;) {
    const auto result = call();
    if (result >= 0 || errno != EINTR) return result;
  }
}

}  // namespace gsel
