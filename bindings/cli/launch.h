// launch.h: a job from the start of its ranks to the end: one fails, all end, unless they are to go on. Does not know:
// where the ranks run.
#pragma once

#include "job_end.h"
#include "ranks.h"

namespace gsel::cli {

struct Launch {
  bool keep_going = false;  // without the ranks that fail
  double wait_s = 1;        // between a failure and asking the others to end
  double grace_s = 2;       // between asking to end and killing
  double timeout_s = 0;     // 0: none
};

// The signals that go to the ranks; blocked, and told by a descriptor, while this lives. SIGCHLD is one more of them.
class Signals {
 public:
  Signals();
  ~Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;
  int fd() const { return fd_; }
  std::vector<int> take() const;  // those that came, without SIGCHLD

 private:
  sigset_t before_{};
  int fd_ = -1;
};

bool asks_to_end(int signal);

// The status in it: 0, or that of the first rank that failed (128 + signal when it was killed), 124 after the timeout,
// 126 or 127 when the program cannot be started, 255 when a host was lost.
JobEnd launch(const Launch& what, Ranks& ranks);

}  // namespace gsel::cli
