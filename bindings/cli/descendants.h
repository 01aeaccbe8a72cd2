// descendants.h: finds processes that the ranks left running. This process is a subreaper and inherits every orphan
// below it, so no descendant can hide, whatever its session or group.
#pragma once

#include <sys/types.h>

#include <set>
#include <vector>

namespace gsel::cli {

class Descendants {
 public:
  // Becomes a subreaper. Existing children, from before an exec, are ignored.
  Descendants();

  // Kills and reaps every descendant, and returns their number. To be called when no rank runs.
  int end_all();

 private:
  std::set<pid_t> older_;
};

// All descendants of this process.
std::vector<pid_t> processes_below();

}  // namespace gsel::cli
