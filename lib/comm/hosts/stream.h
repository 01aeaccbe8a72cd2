// comm/hosts/stream.h: TCP: whole objects over a connection that may end at any time, each step within a deadline. Does
// not know what they say.
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "base/os.h"
#include "comm/hosts/place.h"

namespace gsel::hosts {

// For poll: rounded up, a minute at most.
int milliseconds_until(int64_t deadline_ns);

class Stream {
 public:
  explicit Stream(os::Fd fd);
  int fd() const { return fd_.get(); }
  std::string peer() const;          // "10.0.0.2:51234"
  std::string peer_address() const;  // "10.0.0.2"

  // false: the other side is gone, or takes nothing until the deadline.
  bool send(const void* bytes, size_t n, int64_t deadline_ns);
  template <class T>
  bool send(const T& object, int64_t deadline_ns) {
    return send(&object, sizeof object, deadline_ns);
  }

  // Of these bytes as many as go at once: how many. All, where the other side is gone.
  size_t send_some(const void* bytes, size_t n);

  // Takes what has come; false: nothing will come any more.
  bool fill(size_t most);
  // An object, once it is there whole.
  template <class T>
  std::optional<T> take() {
    T object;
    if (!take(&object, sizeof object)) return {};
    return object;
  }
  bool take(void* bytes, size_t n);

  // Waits for n bytes. woken: wake_fd can be read, and they have not come.
  enum class Came { all, end, nothing, woken };
  Came await(void* bytes, size_t n, int64_t deadline_ns, int wake_fd = -1);
  template <class T>
  Came await(T& object, int64_t deadline_ns) {
    return await(&object, sizeof object, deadline_ns);
  }

 private:
  os::OwnFd fd_;
  std::vector<char> came_;
};

class Listener {
 public:
  // At every address of the place's host; at every one of this host, where it is called so and knows its name as the
  // loopback's alone. nullopt: the port is taken. GSEL_ERR_IO, where it is not this host's, or the name is not
  // known until the deadline.
  static std::optional<Listener> at(const MeetingPlace& place, int64_t deadline_ns);
  const std::vector<os::OwnFd>& fds() const { return fds_; }
  // At every address of this host, at a port that is free.
  static Listener at_any_port();
  uint16_t port() const;
  void close() { fds_.clear(); }
  // A connection that has come to one of them.
  static std::optional<Stream> accept(const os::Fd& fd);

 private:
  Listener() = default;
  // 0, or errno.
  int add(const sockaddr* address, socklen_t length, bool both_versions);
  int add_everywhere(uint16_t port);
  std::vector<os::OwnFd> fds_;
};

// One try at each address; nullopt with the reason in *why, and errno in *failure: nobody is there yet.
std::optional<Stream> connect_to(const MeetingPlace& place, int64_t deadline_ns, std::string* why,
                                 int* failure = nullptr);
// A connection to the first address, which can be written to once it is made. nullopt with errno in *failure.
std::optional<Stream> begin_connecting(const MeetingPlace& place, int* failure);

}  // namespace gsel::hosts
