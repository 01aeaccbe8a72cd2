// base/uninterrupted.h: system calls that a signal may interrupt before they have done anything.
#pragma once

#include <cerrno>

namespace gsel {

// What `call` answers once no signal interrupts it: -1 with errno, or more.
template <class Call>
auto uninterrupted(Call call) {
  for (;;) {
    const auto result = call();
    if (result >= 0 || errno != EINTR) return result;
  }
}

}  // namespace gsel
