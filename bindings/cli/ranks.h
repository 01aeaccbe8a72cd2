// ranks.h: the ranks of a job, as those see them who decide when a job ends: what becomes of each is an event, and all
// are sent signals alike. Does not know: where they run.
#pragma once

#include <poll.h>
#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace gsel::cli {

struct RankEvent {
  enum class What { started, not_started, ended, lost, left };
  What what;
  int32_t rank = -1;  // of the job
  pid_t pid = -1;
  int status = 0;  // ended: as waitpid tells it; not_started: errno, negative where no process could be made
  // not_started: how, for people; lost: which host with all its ranks, and why; left: nothing
  std::string text = {};
  int32_t count = 0;  // left: of processes that ranks had left behind, and that were killed
};

class Ranks {
 public:
  // Descriptors 0 to 2 are open from now on: were one closed, the next descriptor opened would be taken for it.
  Ranks();
  virtual ~Ranks() = default;
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  virtual std::vector<int32_t> numbers() const = 0;          // of those that start() starts
  virtual std::string place_of(int32_t rank) const = 0;      // " on node2", or empty where all are here
  virtual std::string host_of(int32_t rank) const = 0;       // "node2", or empty
  virtual void start() = 0;                                  // stops at the first that does not start
  virtual void send(int signal) = 0;                         // to all that run, and what they started
  virtual void add_to(std::vector<pollfd>& polls) = 0;       // what to wait for,
  virtual void serve(const std::vector<pollfd>& polls) = 0;  // and what to do with its results
  virtual std::vector<RankEvent> take_events() = 0;
  virtual int patience_ms() const { return -1; }  // after which take_events is called though nothing came; -1: never
  virtual bool is_finished() const = 0;  // no rank runs, none of its processes is left, and all output was passed on
};

}  // namespace gsel::cli
