// endings.h: tells joining ranks which ranks of the job have ended, and how, so that they do not wait for them. A
// joining rank connects to an abstract socket named after GSEL_JOB, and gets one line for each end, including earlier
// ones. Does not know processes.
#pragma once

#include <poll.h>

#include <string>
#include <vector>

namespace gsel::cli {

class Endings {
 public:
  // If no socket can be opened, the other functions have no effect.
  explicit Endings(const std::string& job);
  ~Endings();
  Endings(const Endings&) = delete;
  Endings& operator=(const Endings&) = delete;

  // "rank 1 of 4 (pid 4711) exited with status 3"
  void tell(std::string line);

  // Adds descriptors to a poll; then handles the results.
  void add_to(std::vector<pollfd>& polls) const;
  void serve(const std::vector<pollfd>& polls);

 private:
  void admit();

  int listener_ = -1;
  std::vector<int> ranks_;          // sockets of joining ranks
  std::vector<std::string> lines_;  // all lines so far
};

}  // namespace gsel::cli
