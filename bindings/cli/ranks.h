// ranks.h: the interface to the ranks of a job for the code that decides when the job ends: what happens to ranks are
// events, and signals go to all. Does not know where the ranks run.
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
  int32_t rank = -1;  // in the job
  pid_t pid = -1;
  int status = 0;  // ended: as from waitpid; not_started: errno, negative if no process could be created
  // not_started: how, for messages; lost: the host that was lost with all its ranks, and why; left: nothing
  std::string text = {};
  int32_t count = 0;  // left: number of processes that ranks left behind and that were killed
};

class Ranks {
 public:
  // Opens descriptors 0 to 2 if they are closed: the next opened descriptor would get such a number.
  Ranks();
  virtual ~Ranks() = default;
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  virtual std::vector<int32_t> numbers() const = 0;          // ranks that start() starts
  virtual std::string place_of(int32_t rank) const = 0;      // " on node2", or empty if all are on this host
  virtual std::string host_of(int32_t rank) const = 0;       // "node2", or empty
  virtual void start() = 0;                                  // stops at the first failure
  virtual void send(int signal) = 0;                         // to all running ranks and their processes
  virtual void add_to(std::vector<pollfd>& polls) = 0;       // adds descriptors,
  virtual void serve(const std::vector<pollfd>& polls) = 0;  // and handles the results
  virtual std::vector<RankEvent> take_events() = 0;
  virtual int patience_ms() const { return -1; }  // after this time take_events is called without an event; -1: never
  virtual bool is_finished() const = 0;  // no rank runs, none of its processes is left, all output was passed on
};

}  // namespace gsel::cli
