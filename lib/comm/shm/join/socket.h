// comm/shm/join/socket.h: sends and receives whole messages with descriptors over a local socket, each within a
// deadline. Does not know the contents of messages.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/os.h"

namespace gsel::shm {

constexpr size_t kMostFds = 128;  // in one message; the kernel takes 253

// Results of reading: a message, a message without some of its descriptors, the end of the other side, or nothing yet.
enum class Read { message, cut, end, nothing };
// Throws for Read::cut: this process has too many open files.
[[noreturn]] void fail_cut();

class Socket {
 public:
  Socket() = default;
  explicit Socket(os::Fd fd) : fd_(std::move(fd)) {}

  // An abstract name, which is in no file system. nullopt: taken.
  static std::optional<Socket> listen(const std::string& name);
  // nullopt: no process listens there now, or (*is_full) the queue of the listener is full.
  static std::optional<Socket> connect(const std::string& name, bool* is_full = nullptr);
  std::optional<Socket> accept() const;  // nullopt: no connection is waiting

  int fd() const { return fd_.get(); }
  uid_t peer_user() const;
  void close() { fd_.reset(); }

  // false: the other side is gone. Throws on the deadline or a failed system call.
  bool write(const void* message, size_t bytes, const int* fds, size_t n_fds, int64_t deadline_ns) const;
  // Reads one message without waiting. A message that has not exactly `bytes` counts as the end.
  Read read(void* message, size_t bytes, std::vector<os::Fd>& fds) const;
  // Waits for a message and throws if it is cut; Read::nothing: the deadline has passed.
  Read read_until(void* message, size_t bytes, std::vector<os::Fd>& fds, int64_t deadline_ns) const;

 private:
  os::Fd fd_;
};

// The user of the process that listens under an abstract name, for a name whose queue is full; nullopt: none, or the
// kernel does not tell.
std::optional<uid_t> user_of_listener(const std::string& name);

// Milliseconds until a deadline for poll(), at least 0, rounded up.
int milliseconds_until(int64_t deadline_ns) noexcept;

}  // namespace gsel::shm
