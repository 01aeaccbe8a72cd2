// comm/hosts/opening.h: how rank 0 begins a meeting: it listens at the place, or at any port, which it posts. If it
// cannot, it posts the reason. Does not know which ranks come.
#pragma once

#include <string>

#include "comm/hosts/meeting.h"
#include "comm/hosts/stream.h"

namespace gsel::hosts {

struct Opening {
  Listener listener;
  std::string address;  // a posted address; empty: none was posted
};

// address_store: nullptr: listens at the place. secret: of the job.
Opening open_meeting(const Meeting& meeting, AddressStore* address_store, const Secret& secret);

}  // namespace gsel::hosts
