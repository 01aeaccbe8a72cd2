// comm/hosts/sides.h: the two sides of a meeting.
#pragma once

#include "comm/hosts/meeting.h"

namespace gsel::hosts {

HostTable meet_as_root(const Meeting& meeting);   // rank 0, root.cc
HostTable meet_as_guest(const Meeting& meeting);  // guest.cc

}  // namespace gsel::hosts
