// recordings.h: who asks the launcher of a job over several hosts what its ranks are doing gets the recordings of all
// hosts, over a socket with a name made from the launcher's pid, in no file system. Does not know: how hosts are asked.
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

  // Somebody asks and nobody was asked yet: true once, and `hosts` answers are expected from now on.
  bool begins(size_t hosts);
  void add(const std::string& json);  // of some ranks
  void end_of_host();                 // it has told all, or was lost
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

// What the launcher with that pid tells; nothing: it is none, or none of this user's.
std::optional<std::vector<std::string>> recordings_of_launcher(pid_t pid);

// ---- an agent's side ----

// Of the communicators of all processes below this one.
std::vector<std::string> recordings_below();

// Files that failed calls have left in `folder` since then; names and contents.
std::vector<std::pair<std::string, std::string>> recorded_files(const std::string& folder, timespec since);

// "gsel-node2-4711-0.json" in `folder`, unless a file of the other name there has the same content: of a folder that
// the hosts share. Returns whether it was written; a Failure where it cannot be.
bool keep_recording(const std::string& folder, const std::string& host, const std::string& name,
                    const std::string& content);

}  // namespace gsel::cli
