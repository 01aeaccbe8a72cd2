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

// The same for destructors: once idle() has thrown, the wait goes on without it.
template <class Condition>
void idle_wait_to_end(std::condition_variable& changed, std::unique_lock<std::mutex>& lock,
                      const std::function<void()>& idle, Condition&& holds) noexcept {
  try {
    idle_wait(changed, lock, idle, holds);
  } catch (...) {
    if (!lock.owns_lock()) lock.lock();
    changed.wait(lock, holds);
  }
}

}  // namespace gsel::checkpoint
