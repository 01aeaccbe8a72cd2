// base/threads.h: library threads that must not keep a process alive. When the main thread has left by pthread_exit,
// the process ends with the last of the program's own threads.
#pragma once

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

}  // namespace gsel
