// endings.h: tells ranks that are joining which rank of the job has ended, and how, so that they need not wait for it.
// Each connects under a name made from GSEL_JOB, in no file system, and is sent one line for each end, those from
// before included. Does not know: processes.
#pragma once

#include <poll.h>

#include <string>
#include <vector>

namespace gsel::cli {

class Endings {
 public:
  // Without a socket there is nobody to tell.
  explicit Endings(const std::string& job);
  ~Endings();
  Endings(const Endings&) = delete;
  Endings& operator=(const Endings&) = delete;

  // "rank 1 of 4 (pid 4711) exited with status 3"
  void tell(std::string line);

  // What to wait for, added to a poll; then what to do with its results.
  void add_to(std::vector<pollfd>& polls) const;
  void serve(const std::vector<pollfd>& polls);

 private:
  void admit();

  int listener_ = -1;
  std::vector<int> ranks_;          // those that are joining
  std::vector<std::string> lines_;  // told so far
};

}  // namespace gsel::cli
