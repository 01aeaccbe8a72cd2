// base/threads.h: threads of the library that must not keep a process alive: if the main thread has left by
// pthread_exit, the process ends with the last of the program's own threads. Does not know what the threads do.
#pragma once

namespace gsel {

// While it lives, the calling thread of the library waits for work that only the program can give it.
class RestingThread {
 public:
  RestingThread() noexcept;
  ~RestingThread();
  RestingThread(const RestingThread&) = delete;
  RestingThread& operator=(const RestingThread&) = delete;
};

// Whether the main thread has ended and all others are resting threads of the library.
bool only_resting_threads_remain() noexcept;

}  // namespace gsel
