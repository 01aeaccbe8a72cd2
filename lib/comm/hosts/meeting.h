// comm/hosts/meeting.h: how the ranks of several hosts find each other. Rank 0 listens at a place that all know,
// or posts at one where it listens, and hears of every rank on which host it is; then all are told. Only who knows the
// job's secret is heard. Returns on every rank once all have come, or fails on every rank that has come, within the
// deadline. Does not know how the ranks then share memory.
#pragma once

#include <gsel/comm.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "comm/hosts/board.h"
#include "comm/hosts/place.h"
#include "comm/hosts/roster.h"
#include "comm/hosts/secret.h"

namespace gsel::hosts {

struct Meeting {
  int32_t rank, world_size;
  MeetingPlace place;
  std::optional<Secret> secret;  // without one rank 0 makes it, and posts it where only they can read it
  std::string job;               // as boards name it (board.h)
  double seconds;                // until when all are to have come,
  int64_t deadline_ns;
  uint16_t port = 0;          // of rank 0: where it listens for the first ranks of the other hosts,
  uint16_t fanout = 0;        // of their tree (tree.h)
  int64_t silence_ns = 0;     // of rank 0: after which a host is taken for lost
  std::string job_name = {};  // what tells the job from others, as users read it; empty: nothing does
};

struct Met {
  HostTable table;
  Secret secret;
};

Met meet(const Meeting& meeting);

// The two sides. board: where rank 0 posts that it listens; nullptr: it listens at the place.
Met meet_as_root(const Meeting& meeting, std::unique_ptr<Board> board);  // rank 0, root.cc
Met meet_as_guest(const Meeting& meeting, Board* board);                 // guest.cc

}  // namespace gsel::hosts
