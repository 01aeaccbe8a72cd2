// comm/hosts/pause.h: the pause between two polls for messages: yields at first, sleeps later.
#pragma once

#include <sched.h>
#include <unistd.h>

#include <cstdint>

#include "base/os.h"

namespace gsel::hosts {

class Pause {
 public:
  void make() const {
    if (os::now_ns() - since_ns_ < kYieldNs)
      sched_yield();
    else
      usleep(kSleepUs);
  }

 private:
  static constexpr int64_t kYieldNs = 50'000;
  static constexpr useconds_t kSleepUs = 20;
  const int64_t since_ns_ = os::now_ns();
};

}  // namespace gsel::hosts
