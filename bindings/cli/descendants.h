// descendants.h: what the ranks started and left. As a subreaper this process inherits every orphan below it, so no
// descendant can hide, in whatever session or group. Does not know: ranks.
#pragma once

#include <sys/types.h>

#include <set>
#include <vector>

namespace gsel::cli {

class Descendants {
 public:
  // From now on orphans come to us. Children there already, from before an exec, are none of our business.
  Descendants();

  // Kills and reaps every descendant; call when no rank is left. Returns how many there were.
  int end_all();

 private:
  std::set<pid_t> older_;
};

// All processes that this one started, and those below them.
std::vector<pid_t> processes_below();

}  // namespace gsel::cli
