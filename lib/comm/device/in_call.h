// comm/device/in_call.h: one thread at a time may enqueue calls, run requests or register memory, so that they have one
// order.
#pragma once

#include <atomic>

#include "base/error.h"

namespace gsel {

class InCall {
 public:
  // function: for the error.
  InCall(std::atomic_flag& flag, const char* function) : flag_(flag) {
    if (flag.test_and_set(std::memory_order_acquire))
      fail(GSEL_ERR_STATE,
           "{}: another thread is in a call; with an accelerator, one thread at a time makes calls and runs requests",
           function);
  }
  ~InCall() { flag_.clear(std::memory_order_release); }
  InCall(const InCall&) = delete;
  InCall& operator=(const InCall&) = delete;

 private:
  std::atomic_flag& flag_;
};

}  // namespace gsel
