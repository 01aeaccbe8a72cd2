// comm/shm/join/launcher.h: what `gsel run` tells the ranks of its job while they join: which rank has ended, and how,
// so that the others need not wait for it. `gsel run` listens under a name made from GSEL_JOB, in no file system. It
// sends one line for each rank that has ended, also for those that ended before. Does not know how ranks join.
#pragma once

#include <gsel/comm.h>

#include "comm/launch/join_options.h"
#include "comm/shm/join/socket.h"

namespace gsel::shm {

class Launcher {
 public:
  // One that tells nothing where no `gsel run` started this rank, or where others join than the ranks it started.
  explicit Launcher(const JoinOptions& join);

  int fd() const { return socket_.fd(); }  // readable when there may be something to check; negative: there never is
  // Throws GSEL_ERR_PEER about a rank that has ended.
  void check();
  // The same, after a second at most in which it may tell; at once where it has told before.
  void await_word();

 private:
  const JoinOptions& join_;
  Socket socket_;
  bool told_ = false;
};

}  // namespace gsel::shm
