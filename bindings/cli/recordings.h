// recordings.h: recordings of all hosts of a job, for a process that asks the launcher through an abstract socket named
// after the launcher's pid. Does not know how hosts are asked.
#pragma once

#include <poll.h>
#include <sys/types.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "frames.h"

namespace gsel::cli {

// The launcher's side.
class Recordings {
 public:
  Recordings();
  ~Recordings();
  Recordings(const Recordings&) = delete;
  Recordings& operator=(const Recordings&) = delete;

  // True once when a process asks and no request is in progress; then answers of `hosts` hosts are expected.
  bool begins(size_t hosts);
  void add(const std::string& json);  // of some ranks
  void end_of_host();                 // it sent everything, or was lost
  bool is_awaited() const { return awaited_ > 0; }

  void add_to(std::vector<pollfd>& polls) const;
  void serve(const std::vector<pollfd>& polls);

 private:
  using Clock = std::chrono::steady_clock;
  void admit();
  void answer();

  int listener_ = -1;
  std::vector<std::unique_ptr<Channel>> asking_, answered_;
  std::vector<std::string> found_;
  size_t awaited_ = 0;  // hosts
  Clock::time_point begun_{};
};

// The recordings from the launcher with that pid; nothing if the process is no launcher, or not of this user.
std::optional<std::vector<std::string>> recordings_of_launcher(pid_t pid);

// ---- an agent's side ----

// Recordings of the communicators of all descendants of this process.
std::vector<std::string> recordings_below();

// Files in `folder` that failed calls have written since then: names and contents.
std::vector<std::pair<std::string, std::string>> recorded_files(const std::string& folder, timespec since);

// Writes "gsel-node2-4711-0.json" in `folder`, unless the file `name` there has the same content: the hosts may share
// the folder. Returns whether it was written; throws a Failure if that is impossible.
bool keep_recording(const std::string& folder, const std::string& host, const std::string& name,
                    const std::string& content);

}  // namespace gsel::cli
