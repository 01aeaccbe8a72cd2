// launch.h: ranks on this host from start to end: all of them, or none; one fails, all end, unless they are to go on.
// Does not know: what is in their environments.
#pragma once

#include <string>
#include <vector>

#include "job.h"
#include "job_end.h"

namespace gsel::cli {

struct Launch {
  std::string job;                                     // GSEL_JOB of the ranks
  std::vector<std::string> program;                    // and its arguments
  std::vector<std::vector<std::string>> environments;  // one per rank, NAME=VALUE
  std::vector<Place> places;                           // one per rank; none: anywhere
  int64_t first_rank = 0;                              // of those of this host, which are numbered from it
  int64_t world_size = 0;                              // of all hosts
  bool tag_output = false;
  bool keep_going = false;  // without the ranks that fail
  double wait_s = 1;        // between a failure and asking the others to end
  double grace_s = 2;       // between asking to end and killing
  double timeout_s = 0;     // 0: none
};

// The status in it: 0, or that of the first rank that failed (128 + signal when it was killed), 124 after the timeout,
// 126 or 127 when the program cannot be started.
JobEnd launch(const Launch& what);

}  // namespace gsel::cli
