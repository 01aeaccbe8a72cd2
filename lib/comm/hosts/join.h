// comm/hosts/join.h: how ranks join whose place to meet is given. Does not know how ranks of one host share memory.
#pragma once

#include <memory>

#include "comm/interface/control.h"
#include "comm/launch/join_options.h"

namespace gsel::hosts {

// Through shared memory, where all ranks find themselves on one host; see gsel_comm_options.rendezvous.
std::unique_ptr<Control> join(const JoinOptions& join);

}  // namespace gsel::hosts
