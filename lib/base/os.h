// base/os.h: what the library asks of Linux directly: descriptors that close themselves, the clock, randomness,
// futexes, a descriptor that reports the end of a process, and fork detection.
#pragma once

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <utility>

#include "base/error.h"

namespace gsel::os {

// Owns a file descriptor.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Fd() { reset(); }
  void reset() noexcept;
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

// A descriptor that forked children do not inherit: in a child its number refers to /dev/null, so that other processes
// do not take the child for this process.
class OwnFd : public Fd {
 public:
  OwnFd() = default;
  explicit OwnFd(Fd fd);
  OwnFd(OwnFd&&) noexcept = default;
  OwnFd& operator=(OwnFd&& other) noexcept;
  ~OwnFd();
};

int64_t now_ns() noexcept;  // CLOCK_MONOTONIC
// A clock that costs next to nothing. All processors of the host agree on it; its rate is constant but unknown.
inline int64_t ticks() noexcept {
#if defined(__x86_64__)
  return static_cast<int64_t>(__builtin_ia32_rdtsc());
#else
  return now_ns();
#endif
}
inline double now_seconds() noexcept {
  return static_cast<double>(now_ns()) * 1e-9;
}

// Fills `out` with random bytes; GSEL_ERR_IO when the system has none.
void random_bytes(void* out, size_t bytes);

// Shared futexes: the word may be in memory that processes share. futex_wait returns after a wake, a change of the
// word, or the timeout.
void futex_wait(const std::atomic<uint32_t>& word, uint32_t expected, int64_t nanoseconds) noexcept;
void futex_wake_all(const std::atomic<uint32_t>& word) noexcept;

// std::atomic_thread_fence for accesses between processes. The thread sanitizer sees one process and does not support
// it.
inline void fence([[maybe_unused]] std::memory_order order) noexcept {
#if !defined(__SANITIZE_THREAD__)
  std::atomic_thread_fence(order);
#endif
}

// A memory barrier whose whole cost is on one side (membarrier): after pass_barriers_everywhere this thread sees every
// earlier write of all threads of registered processes, and they see its earlier writes. register_for_barriers returns
// false when the kernel does not support it.
bool register_for_barriers() noexcept;
void pass_barriers_everywhere() noexcept;

// How many forks lead from the first process to this one; a handle with another number was made by a parent process.
uint64_t fork_generation() noexcept;
// A random number that differs between processes, forked ones included.
uint64_t process_token();
const uint64_t* process_token_place() noexcept;  // lets other processes verify that a process is the expected one
// Lock for process-wide bookkeeping at join time; never left locked in a forked child.
std::mutex& process_mutex();

// A descriptor for other processes that polls as ready once this process has ended: a pidfd, or, on kernels without
// pidfd, the read end of a pipe whose write end only this process has. `keep` must live as long as the process is to
// count as alive.
struct Life {
  Fd watch;
  OwnFd keep;  // the write end of the pipe, if there is one
};
Life open_life();
bool life_ended(int fd) noexcept;

// Bytes that this process can allocate without evicting the memory of other processes, within the limits of the host
// and of its control groups; UINT64_MAX where neither is known.
uint64_t available_memory();

}  // namespace gsel::os

namespace gsel {

// Repeats `call` until no signal interrupts it; returns its result, which is -1 with errno for another error.
template <class Call>
auto uninterrupted(Call call) {
  for (;;) {
    const auto result = call();
    if (result >= 0 || errno != EINTR) return result;
  }
}

// Throws GSEL_ERR_FORKED when an object with this fork generation was made in the parent process.
inline void require_own_process(uint64_t fork_generation, const char* what) {
  if (os::fork_generation() != fork_generation)
    throw Error(GSEL_ERR_FORKED,
                fmt::format("{} on a communicator of the parent process; join a new one after fork", what));
}

}  // namespace gsel
