// base/threads.h: threads of the library. They have all signals blocked, so that no signal handler of the program runs
// on them, and must not keep a process alive: when the main thread has left by pthread_exit, the process ends with the
// last of the program's own threads.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <system_error>
#include <thread>
#include <utility>

#include "base/error.h"

namespace gsel {

// While the object lives, the calling library thread waits for work that only the program can give it.
class RestingThread {
 public:
  RestingThread() noexcept;
  ~RestingThread();
  RestingThread(const RestingThread&) = delete;
  RestingThread& operator=(const RestingThread&) = delete;
};

// Whether the main thread has ended and all others are resting threads of the library.
bool only_resting_threads_remain() noexcept;

// Starts a thread with all signals blocked. Throws as std::thread does.
template <class Body>
std::thread quiet_thread(Body&& body) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  struct Restore {
    const sigset_t& mask;
    ~Restore() { pthread_sigmask(SIG_SETMASK, &mask, nullptr); }
  } restore{before};
  return std::thread(std::forward<Body>(body));
}

template <class Body>
std::thread request_thread(Body&& body) {
  try {
    return quiet_thread(std::forward<Body>(body));
  } catch (const std::system_error& e) {
    fail(GSEL_ERR_NOMEM, "a request needs a thread and none could be started: {}", errno_text(e.code().value()));
  }
}

}  // namespace gsel
