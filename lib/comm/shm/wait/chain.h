// comm/shm/wait/chain.h: follows the chain of waits to its last rank, through all communicators of a family. The
// caller decides what to report.
//
// A rank that waits long says in its block of the communicator that was joined in which communicator it waits ("waits",
// the arena's place in the family's memory); for whom, it says in its block there. A wait for which no thread of the
// caller is blocked, such as that of a request nobody waits for yet, is marked: its rank may be late for another
// reason. A wait that failed stays where it is until the communicator is left, and the reason of the failure, which is
// in the arena, ends the chain.
#pragma once

#include <cstdint>
#include <memory>

#include "comm/shm/memory/arena.h"

namespace gsel::shm {

constexpr uint64_t kBlocksCaller = 1;  // in a word of waits, whose places are of pages

struct ChainEnd {
  int32_t family_rank;           // who holds all up
  int32_t member;                // the last on the way that is of the communicator where the chain begins
  std::shared_ptr<Arena> arena;  // where it is waited for,
  int32_t waiter, rank;          // by whom, and as which rank
  bool gave_up;                  // the waiter has
};

}  // namespace gsel::shm
