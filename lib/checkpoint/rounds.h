// checkpoint/rounds.h: work of all ranks on files, which takes each of them its own time: ranks that are done wait, and
// those that are not say now and then that they go on. So the communicator's timeout is for a rank that says nothing,
// and not for the slowest disk. Does not know what is written or read.
#pragma once

#include <functional>
#include <string_view>
#include <thread>

#include "base/error.h"
#include "comm/communicator.h"

namespace gsel::checkpoint {

// Of the thread that makes it.
class Rounds {
 public:
  explicit Rounds(Communicator& comm);

  // A collective: work(), on each rank. Throws as on_all_ranks does. Once the work of a rank has failed, that of the
  // others ends in their next go_on(). comm does nothing else meanwhile.
  void run(std::string_view made, const std::function<void()>& work);

  // In the work, where it may take long: after each block, or each file. Nothing on another thread.
  void go_on();
  // For those who wait for a disk: says that this rank goes on, and does not end its work. Nothing on another thread.
  std::function<void()> idle() {
    return [this] { answer(); };
  }
  // In the work: a call that may take longer than the timeout, and uses neither the communicator nor a device. It has a
  // thread of its own, and this one says that it goes on. Throws what the call throws, when that has ended.
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
