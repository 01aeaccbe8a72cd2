// base/os.h: what the library asks of Linux directly: descriptors that close themselves, the clock, randomness,
// futexes, a descriptor that reports when a process has ended, and detection of fork. Does not know what they are used
// for.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <utility>

namespace gsel::os {

// A file descriptor with an owner.
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

// One that only this process keeps: in a forked child its number is that of /dev/null, so that nobody takes the child
// for this process.
class OwnFd : public Fd {
 public:
  OwnFd() = default;
  explicit OwnFd(Fd fd);
  OwnFd(OwnFd&&) noexcept = default;
  OwnFd& operator=(OwnFd&& other) noexcept;
  ~OwnFd();
};

int64_t now_ns() noexcept;  // CLOCK_MONOTONIC
// A clock that costs next to nothing, alike on all processors of the host, of a constant rate nobody states.
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

// Fills with random bytes; GSEL_ERR_IO when the system has none.
void random_bytes(void* out, size_t bytes);

// Shared futexes: the word may lie in memory of several processes. wait returns after a wake, a change or the time.
void futex_wait(const std::atomic<uint32_t>& word, uint32_t expected, int64_t nanoseconds) noexcept;
void futex_wake_all(const std::atomic<uint32_t>& word) noexcept;

// std::atomic_thread_fence, for accesses that cross processes; the thread sanitizer, which sees one process, lacks it.
inline void fence([[maybe_unused]] std::memory_order order) noexcept {
#if !defined(__SANITIZE_THREAD__)
  std::atomic_thread_fence(order);
#endif
}

// A barrier for memory that one side pays for alone: after pass_barriers_everywhere, whatever any thread of a
// registered process wrote before is seen here, and it sees what was written here before. false: the kernel cannot.
bool register_for_barriers() noexcept;
void pass_barriers_everywhere() noexcept;

// How often this process has become a forked child; a handle that remembers another number came from the parent.
uint64_t fork_generation() noexcept;
// A random number that differs between processes, forked ones included.
uint64_t process_token();
const uint64_t* process_token_place() noexcept;  // for others to see that a process is the one they mean
// Lock for bookkeeping of the whole process at join time; never left locked in a forked child.
std::mutex& process_mutex();

// A descriptor that polls as ready once this process has ended, to be handed to others: a pidfd, or the read end of a
// pipe whose write end nobody but this process keeps (kernels without pidfd). `keep` must live as long as the process
// wants to be seen alive.
struct Life {
  Fd watch;
  OwnFd keep;  // set for a pipe only
};
Life open_life();
bool life_ended(int fd) noexcept;

}  // namespace gsel::os
