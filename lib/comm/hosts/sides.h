// comm/hosts/sides.h: the two sides of a meeting.
#pragma once

#include <memory>

#include "comm/hosts/board.h"
#include "comm/hosts/meeting.h"

namespace gsel::hosts {

// board: where rank 0 posts that it listens; nullptr: it listens at the place.
Met meet_as_root(const Meeting& meeting, std::unique_ptr<Board> board);  // rank 0, root.cc
Met meet_as_guest(const Meeting& meeting, Board* board);                 // guest.cc

}  // namespace gsel::hosts
