// comm/hosts/opening.h: how rank 0 begins a meeting: it listens at the place, or anywhere and posts where. If it
// cannot, those who look there are told why. Does not know who comes.
#pragma once

#include <string>

#include "comm/hosts/meeting.h"
#include "comm/hosts/stream.h"

namespace gsel::hosts {

struct Opening {
  Listener listener;
  std::string address;  // one that was posted; empty: none was
};

// board: nullptr: at the place. secret: what the ranks then share.
Opening open_meeting(const Meeting& meeting, Board* board, const Secret& secret);

}  // namespace gsel::hosts
