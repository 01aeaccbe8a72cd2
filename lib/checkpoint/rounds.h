// checkpoint/rounds.h: work of all ranks on files. Each rank takes its own time: ranks that are done wait, and the
// others report regularly that they continue. So the communicator's timeout applies to a rank that reports nothing, and
// not to the slowest disk. Does not know what is written or read.
#pragma once

#include <functional>
#include <string_view>
#include <thread>

#include "base/error.h"
#include "comm/communicator.h"

namespace gsel::checkpoint {

// For the thread that makes it; other threads may call go_on and idle.
class Rounds {
 public:
  explicit Rounds(Communicator& comm);

  // A collective: runs work() on each rank. Throws as on_all_ranks does. After a rank's work has failed, the next
  // go_on() of each other rank ends its work, too. Nothing else may use comm meanwhile.
  void run(std::string_view made, const std::function<void()>& work);

  // Called by the work after each block, or each file: reports that this rank continues. Throws if another rank has
  // failed. Does nothing on another thread.
  void go_on();
  // For waits for a disk: reports that this rank continues, and never ends its work. Does nothing on another thread.
  std::function<void()> idle() {
    return [this] { answer(); };
  }
  // Called by the work. Runs a call that may take longer than the timeout, and uses neither the communicator nor a
  // device, on a thread of its own; this thread reports meanwhile that the rank continues. Throws what the call throws,
  // after the call has ended.
  void aside(const std::function<void()>& call);

 private:
  enum class State : uint8_t { working, done, failed };
  void answer();
  bool hold(State mine);
  void stop_after_failure();

  Communicator& comm_;
  const std::thread::id thread_ = std::this_thread::get_id();
  const double every_s_;     // a round
  double began_ = 0;         // the round
  bool has_failed_ = false;  // some rank
  bool is_stopped_ = false;  // this rank's work, for that
};

}  // namespace gsel::checkpoint
