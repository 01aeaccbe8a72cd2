// comm/hosts/join.h: joins ranks. Does not know how ranks of one host share memory.
#pragma once

#include <memory>

#include "comm/interface/control.h"
#include "comm/launch/join_options.h"

namespace gsel::hosts {

// Over shared memory only, if all ranks are on one host; see gsel_comm_options.rendezvous.
std::unique_ptr<Control> join(const JoinOptions& join);

}  // namespace gsel::hosts
