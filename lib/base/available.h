// base/available.h: how much memory is available now. Does not know what it is for.
#pragma once

#include <cstdint>

namespace gsel::os {

// Bytes that could be taken without pushing anybody out, within the host and the control groups of this process;
// UINT64_MAX where nobody says.
uint64_t available_memory();

}  // namespace gsel::os
