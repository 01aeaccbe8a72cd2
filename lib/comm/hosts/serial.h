// comm/hosts/serial.h: runs the collectives of a rank one at a time in the order given: on the caller's thread if
// nothing is under way, else on a thread that is created with the first asynchronous collective. Does not know what
// they do.
#pragma once

#include <functional>
#include <memory>
#include <thread>

#include "comm/interface/backend.h"

namespace gsel::hosts {

class Serial {
 public:
  Serial();
  ~Serial() { stop(); }
  void stop();  // after all tasks have ended or will end by themselves
  Serial(const Serial&) = delete;
  Serial& operator=(const Serial&) = delete;

  // Runs a task to its end; throws its failure. GSEL_ERR_STATE inside another task.
  void run(const std::function<void()>& body);
  std::unique_ptr<BackendRequest> start(std::function<void()> body);
  bool under_way() const;
  bool on_this_thread() const;  // a task runs on this thread
  bool is_alone_here() const;   // and it was called by run() on this thread, and no other task is queued

 private:
  struct Task;
  struct Core;
  class Started;
  static void run_queue(Core& core);

  std::shared_ptr<Core> core_;
  std::thread thread_;
};

}  // namespace gsel::hosts
