// comm/hosts/stream.h: TCP streams and listeners: sends and receives whole objects, each step within a deadline. Does
// not know the contents.
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/os.h"
#include "comm/hosts/place.h"

namespace gsel::hosts {

// Timeout for poll: rounded up, a minute at most.
int milliseconds_until(int64_t deadline_ns);

class Stream {
 public:
  explicit Stream(os::Fd fd);
  int fd() const { return fd_.get(); }
  std::string peer() const;          // "10.0.0.2:51234"
  std::string peer_address() const;  // "10.0.0.2"

  // false: the other side is gone, or the deadline has passed.
  bool send(const void* bytes, size_t n, int64_t deadline_ns);
  template <class T>
  bool send(const T& object, int64_t deadline_ns) {
    return send(&object, sizeof object, deadline_ns);
  }

  // Sends as many bytes as possible without waiting; returns how many. n if the other side is gone.
  size_t send_some(const void* bytes, size_t n);

  // Reads available bytes into the buffer, which has `most` bytes at most; false: the other side has closed.
  bool fill(size_t most);
  // Takes an object from the buffer if it has arrived completely.
  template <class T>
  std::optional<T> take() {
    T object;
    if (!take(&object, sizeof object)) return {};
    return object;
  }
  bool take(void* bytes, size_t n);

  // Waits for n bytes. nothing: the deadline has passed; woken: wake_fd became readable.
  enum class Wait { all, end, nothing, woken };
  Wait await(void* bytes, size_t n, int64_t deadline_ns, int wake_fd = -1);
  template <class T>
  Wait await(T& object, int64_t deadline_ns) {
    return await(&object, sizeof object, deadline_ns);
  }

 private:
  os::OwnFd fd_;
  std::vector<char> received_;
};

class Listener {
 public:
  // Listens at every address of the place's host; at every address of this host if the name is this host's own and
  // resolves to the loopback only. nullopt: the port is taken. GSEL_ERR_IO if the address is not this host's, or the
  // name does not resolve until the deadline.
  static std::optional<Listener> at(const MeetingPlace& place, int64_t deadline_ns);
  const std::vector<os::OwnFd>& fds() const { return fds_; }
  // Listens at every address of this host, at a free port.
  static Listener at_any_port();
  uint16_t port() const;
  void close() { fds_.clear(); }
  // Accepts a connection on one of the descriptors.
  static std::optional<Stream> accept(const os::Fd& fd);

 private:
  Listener() = default;
  // 0, or errno.
  int add(const sockaddr* address, socklen_t length, bool both_versions);
  int add_everywhere(uint16_t port);
  std::vector<os::OwnFd> fds_;
};

// Tries each address once; nullopt, with the reason in *why and errno in *failure: no connection.
std::optional<Stream> connect_to(const MeetingPlace& place, int64_t deadline_ns, std::string* why,
                                 int* failure = nullptr);
// Starts a connection to the first address; it becomes writable when it is made. nullopt, with errno in *failure.
std::optional<Stream> begin_connecting(const MeetingPlace& place, int* failure);

}  // namespace gsel::hosts
