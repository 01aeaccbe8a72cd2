// base/forked.h: refuses, in a forked child, objects that the parent made.
#pragma once

#include "base/error.h"
#include "base/os.h"

namespace gsel {

// GSEL_ERR_FORKED where what remembers this number of forks came from the parent process.
inline void require_own_process(uint64_t fork_generation, const char* what) {
  if (os::fork_generation() != fork_generation)
    throw Error(GSEL_ERR_FORKED,
                fmt::format("{} on a communicator of the parent process; join a new one after fork", what));
}

}  // namespace gsel
