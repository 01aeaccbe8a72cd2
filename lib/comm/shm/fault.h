// comm/shm/fault.h: faults on demand, so that recovery can be tested at every step of every protocol. Refuses to know
// the protocols beyond the names of their steps.
#pragma once

#include <cstdint>

namespace gsel::shm {

// Where a rank can be hit: before it posts its header line, behind it, with its part staged, reduced, copied, inside a
// direct exchange, inside a single copy, before and behind a line of a channel, at the end of a call.
enum class Step : uint32_t { enter, header, staged, reduced, copied, direct, single_copy, sent, taken, leave };

}  // namespace gsel::shm
