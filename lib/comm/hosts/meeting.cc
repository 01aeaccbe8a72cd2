// comm/hosts/meeting.cc: see meeting.h.
#include "comm/hosts/meeting.h"

#include "base/error.h"
#include "comm/hosts/sides.h"

namespace gsel::hosts {

HostTable meet(const Meeting& meeting) {
  return meeting.rank == 0 ? meet_as_root(meeting) : meet_as_guest(meeting);
}

}  // namespace gsel::hosts
