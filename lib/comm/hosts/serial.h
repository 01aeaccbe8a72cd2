// comm/hosts/serial.h: the collectives of a rank, which run one at a time in the order given: on the caller's thread
// where nothing is under way, else on a thread that starts with the first that its caller does not wait for. Does not
// know what they do.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "base/error.h"
#include "comm/interface/backend.h"

namespace gsel::hosts {

class Serial {
 public:
  Serial();
  ~Serial() { stop(); }
  void stop();  // once nothing is under way that does not end by itself
  Serial(const Serial&) = delete;
  Serial& operator=(const Serial&) = delete;

  // To the end; throws what failed. GSEL_ERR_STATE inside of another one.
  void run(const std::function<void()>& body);
  std::unique_ptr<BackendRequest> start(std::function<void()> body);
  bool under_way() const;
  bool on_this_thread() const;  // one of them runs here
  bool is_alone_here() const;   // whose caller is this thread, and nothing is given behind it

 private:
  struct Task;
  struct Core;
  class Started;
  static void run_queue(Core& core);

  std::shared_ptr<Core> core_;
  std::thread thread_;
};

}  // namespace gsel::hosts
