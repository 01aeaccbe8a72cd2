// comm/shm/join/launcher.h: receives from `gsel run`, while the ranks of its job join, which rank has ended and how, so
// that the others need not wait for it. `gsel run` listens on an abstract socket named after GSEL_JOB. It sends one
// line for each rank that has ended, including ranks that ended before the connection. Does not know how ranks join.
#pragma once

#include <gsel/comm.h>

#include "comm/launch/join_options.h"
#include "comm/shm/join/socket.h"

namespace gsel::shm {

class Launcher {
 public:
  // Receives nothing if `gsel run` did not start this rank, or if other ranks join than those it started.
  explicit Launcher(const JoinOptions& join);

  int fd() const { return socket_.fd(); }  // readable when there may be something to check; negative: never
  // Throws GSEL_ERR_PEER about a rank that has ended.
  void check();
  // Waits up to a second for a line, then the same; returns immediately if a line has come before.
  void await_word();

 private:
  const JoinOptions& join_;
  Socket socket_;
  bool has_line_ = false;
};

}  // namespace gsel::shm
