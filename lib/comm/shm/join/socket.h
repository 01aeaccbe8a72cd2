// comm/shm/join/socket.h: sends and receives whole messages with descriptors over a local socket, each step within a
// deadline. Does not know what the messages say.
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

// Results of reading: a message, a message some descriptors of which did not arrive, the end of the other side, or
// nothing yet.
enum class Read { message, cut, end, nothing };
// For one that was cut, from a side that is known to send few.
[[noreturn]] void fail_cut();

class Socket {
 public:
  Socket() = default;
  explicit Socket(os::Fd fd) : fd_(std::move(fd)) {}

  // A name in the abstract space, which no file system knows. nullopt: taken.
  static std::optional<Socket> listen(const std::string& name);
  // nullopt: nobody listens there now, or (*is_full) too many wait there.
  static std::optional<Socket> connect(const std::string& name, bool* is_full = nullptr);
  std::optional<Socket> accept() const;  // nullopt: nobody is waiting

  int fd() const { return fd_.get(); }
  uid_t peer_user() const;
  void close() { fd_.reset(); }

  // False when the other side is gone; throws on the deadline or a failing system call.
  bool write(const void* message, size_t bytes, const int* fds, size_t n_fds, int64_t deadline_ns) const;
  // Reads one message of exactly `bytes` at most once; shorter or longer ones count as the end.
  Read read(void* message, size_t bytes, std::vector<os::Fd>& fds) const;
  // Waits for a message, which must not be cut; nothing means the deadline has passed.
  Read read_until(void* message, size_t bytes, std::vector<os::Fd>& fds, int64_t deadline_ns) const;

 private:
  os::Fd fd_;
};

// The user of the process that listens under an abstract name, where the socket takes no connection because too many
// wait there; nullopt: nobody, or the kernel does not tell (socket_holder.cc).
std::optional<uid_t> user_of_listener(const std::string& name);

// Milliseconds until then for poll(), at least 0, rounded up.
int milliseconds_until(int64_t deadline_ns) noexcept;

}  // namespace gsel::shm
