// launch.h: runs a job from the start of its ranks to the end. When one rank fails, all are ended, unless the others
// are to continue. Does not know where the ranks run.
#pragma once

#include "job_end.h"
#include "ranks.h"

namespace gsel::cli {

struct Launch {
  bool keep_going = false;  // when ranks fail
  double wait_s = 1;        // from a failure to asking the other ranks to end
  double grace_s = 2;       // from asking to killing
  double timeout_s = 0;     // 0: none
};

// The signals that are passed on to the ranks, and SIGCHLD: blocked, and readable from a descriptor, while this object
// lives.
class Signals {
 public:
  Signals();
  ~Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;
  int fd() const { return fd_; }
  std::vector<int> take() const;  // pending signals except SIGCHLD

 private:
  sigset_t before_{};
  int fd_ = -1;
};

bool asks_to_end(int signal);

// The status in the result: 0, or that of the first rank that failed (128 + signal if killed), 124 after the timeout,
// 126 or 127 if the program cannot be started, 255 if a host was lost.
JobEnd launch(const Launch& what, Ranks& ranks);

}  // namespace gsel::cli
