// checkpoint/idle_wait.h: waits for a disk, on a thread that has to say now and then that it is there.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>

namespace gsel::checkpoint {

// Until the condition holds. Calls idle(), if there is one, every 50 ms with the lock free; it may throw.
template <class Condition>
void idle_wait(std::condition_variable& changed, std::unique_lock<std::mutex>& lock, const std::function<void()>& idle,
               Condition&& holds) {
  constexpr std::chrono::milliseconds kEvery{50};
  if (!idle) return changed.wait(lock, holds);
  while (!changed.wait_for(lock, kEvery, holds)) {
    lock.unlock();
    idle();
    lock.lock();
  }
}

}  // namespace gsel::checkpoint
