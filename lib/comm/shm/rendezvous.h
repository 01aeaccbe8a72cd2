// comm/shm/rendezvous.h: how the ranks of one host find each other and come to share an arena. Refuses to know what
// they do with it. Rank 0 listens under a name made from the id, in no file system and on no port; the kernel vouches
// for one host and one user. Returns on every rank once all have joined, or fails on every rank, within the deadline.
#pragma once

#include <gsel/plugin.h>

#include <memory>
#include <vector>

#include "base/os.h"
#include "comm/shm/arena.h"

namespace gsel::shm {

struct Member {
  int32_t pid = 0;
  os::Fd life;  // polls as ready when the process has ended; none for ranks of the own process
};

struct Joined {
  std::shared_ptr<Arena> arena;
  std::vector<Member> members;  // [world_size]
  os::Life own_life;
};

Joined rendezvous(const gsel_join& join);

}  // namespace gsel::shm
