// comm/shm/join/rendezvous.h: how the ranks of one host find each other and get an arena, the shared memory of a
// communicator. Rank 0 listens on an abstract socket named after the id, which needs no file and no port and exists on
// one host only; both sides check that the other has the same user. Returns on every rank after all have joined, or
// fails on every rank, within the deadline. Does not know what the ranks do with the arena.
#pragma once

#include <gsel/comm.h>

#include <memory>
#include <string>

#include "comm/launch/join_options.h"
#include "comm/shm/join/socket.h"
#include "comm/shm/memory/arena.h"
#include "comm/shm/memory/family.h"

namespace gsel::shm {

struct Joined {
  std::shared_ptr<Family> family;  // its ranks are the communicator's
  std::shared_ptr<Arena> arena;
};

Joined rendezvous(const JoinOptions& join);
inline int32_t shown_rank(const JoinOptions& join, int32_t rank) {
  return join.shown_ranks.empty() ? rank : join.shown_ranks[static_cast<size_t>(rank)];
}

// The abstract socket where ranks with this id meet.
std::string meeting_name(const gsel_unique_id& id);
// GSEL_ERR_PERMISSION if another user is at the other end, or listens under a name that accepts no connection.
void require_own_user(const Socket& socket);
void require_own_holder(const std::string& name);

// Last part of error messages about ranks that did not meet: what to do.
inline const char* how_to_meet(const JoinOptions& join) {
  return join.rendezvous.empty()
             ? "start all ranks within the join timeout, with one id, on one host and in one network namespace; where "
               "ranks are on several, name a place to meet in gsel_comm_options.rendezvous, or in GSEL_RENDEZVOUS if "
               "a launcher gives rank and size"
             : "start all ranks within the join timeout";
}

// The memory of a family whose first communicator has this layout, and that communicator's arena in it.
struct Mapped {
  std::shared_ptr<SharedMemory> memory;
  std::shared_ptr<Arena> arena;
};
Mapped map_family(int fd, const Layout& layout);

}  // namespace gsel::shm
