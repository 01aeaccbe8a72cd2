// base/forked.h: refuses objects of the parent process in a forked child.
#pragma once

#include "base/error.h"
#include "base/os.h"

namespace gsel {

// Throws GSEL_ERR_FORKED when an object with this fork generation was made in the parent process.
inline void require_own_process(uint64_t fork_generation, const char* what) {
  if (os::fork_generation() != fork_generation)
    throw Error(GSEL_ERR_FORKED,
                fmt::format("{} on a communicator of the parent process; join a new one after fork", what));
}

}  // namespace gsel
