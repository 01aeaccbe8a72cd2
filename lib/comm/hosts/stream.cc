// comm/hosts/stream.cc: see stream.h.
#include "comm/hosts/stream.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/error.h"
#include "base/resolve.h"

namespace gsel::hosts {
namespace {

constexpr int64_t kLookAgainNs = 50'000;  // time of polling before a sleep
constexpr size_t kAheadBytes = 4096;      // read ahead
constexpr int64_t kResolveAgainNs = 500'000'000, kTryNs = 3'000'000'000;

enum class Ready { yes, woken, no };

// wake_fd: -1: none.
Ready wait_ready(int fd, short events, int64_t deadline_ns, int wake_fd) {
  pollfd items[] = {{.fd = fd, .events = events, .revents = 0}, {.fd = wake_fd, .events = POLLIN, .revents = 0}};
  for (;;) {
    const int ready = poll(items, 2, milliseconds_until(deadline_ns));
    if (ready > 0) return items[0].revents != 0 ? Ready::yes : Ready::woken;
    if (ready < 0 && errno != EINTR) fail(GSEL_ERR_IO, "poll failed: {}", errno_text(errno));
    if (os::now_ns() >= deadline_ns) return Ready::no;
  }
}

bool is_ready(int fd, short events, int64_t deadline_ns) {
  return wait_ready(fd, events, deadline_ns, -1) == Ready::yes;
}

Resolved resolve(const MeetingPlace& place, int flags, int64_t deadline_ns) {
  return gsel::resolve(place.host, place.port, flags, deadline_ns);
}

os::Fd open_socket(const addrinfo& address) {
  return os::Fd(socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

sockaddr_storage peer_of(int fd, socklen_t& length) {
  sockaddr_storage address = {};
  length = sizeof address;
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) length = 0;
  return address;
}

bool is_loopback(const sockaddr* address) {
  if (address->sa_family == AF_INET6)
    return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
  return ntohl(reinterpret_cast<const sockaddr_in*>(address)->sin_addr.s_addr) >> 24 == 127;
}

// Whether a name resolves to the loopback only on this host: Debian writes "127.0.1.1 node1" into node1's /etc/hosts.
bool is_own_name(const MeetingPlace& place, const addrinfo* addresses) {
  if (place.host == "localhost" || place.host.ends_with(".localhost")) return false;  // loopbacks everywhere
  if (resolve(place, AI_NUMERICHOST, 0).failure == 0) return false;
  for (const addrinfo* one = addresses; one; one = one->ai_next)
    if (!is_loopback(one->ai_addr)) return false;
  return true;
}

uint16_t port_number(const MeetingPlace& place) {
  return static_cast<uint16_t>(std::strtoul(place.port.c_str(), nullptr, 10));
}

std::string address_text(const sockaddr* address, socklen_t length) {
  char host[NI_MAXHOST] = "?", port[NI_MAXSERV] = "?";
  getnameinfo(address, length, host, sizeof host, port, sizeof port, NI_NUMERICHOST | NI_NUMERICSERV);
  return address->sa_family == AF_INET6 ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

}  // namespace

int milliseconds_until(int64_t deadline_ns) {
  return static_cast<int>(std::clamp<int64_t>((deadline_ns - os::now_ns() + 999'999) / 1'000'000, 0, 60'000));
}

Stream::Stream(os::Fd fd) : fd_(std::move(fd)) {
  const int on = 1;
  setsockopt(fd_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

std::string Stream::peer() const {
  socklen_t length = 0;
  const sockaddr_storage address = peer_of(fd_.get(), length);
  return length == 0 ? "?" : address_text(reinterpret_cast<const sockaddr*>(&address), length);
}

std::string Stream::peer_address() const {
  socklen_t length = 0;
  const sockaddr_storage address = peer_of(fd_.get(), length);
  char host[NI_MAXHOST] = "?";
  if (length > 0)
    getnameinfo(reinterpret_cast<const sockaddr*>(&address), length, host, sizeof host, nullptr, 0, NI_NUMERICHOST);
  constexpr std::string_view kMapped = "::ffff:";  // an IPv4 address of an IPv6 socket
  const std::string text = host;
  return text.starts_with(kMapped) ? text.substr(kMapped.size()) : text;
}

bool Stream::send(const void* bytes, size_t n, int64_t deadline_ns) {
  const char* at = static_cast<const char*>(bytes);
  while (n > 0) {
    const ssize_t sent = ::send(fd_.get(), at, n, MSG_NOSIGNAL);
    if (sent >= 0) {
      at += sent;
      n -= static_cast<size_t>(sent);
    } else if (errno == EAGAIN || errno == EINTR) {
      if (!is_ready(fd_.get(), POLLOUT, deadline_ns)) return false;
    } else {
      return false;
    }
  }
  return true;
}

size_t Stream::send_some(const void* bytes, size_t n) {
  size_t sent = 0;
  while (sent < n) {
    const ssize_t went = ::send(fd_.get(), static_cast<const char*>(bytes) + sent, n - sent, MSG_NOSIGNAL);
    if (went >= 0)
      sent += static_cast<size_t>(went);
    else if (errno != EINTR)
      return errno == EAGAIN ? sent : n;
  }
  return sent;
}

bool Stream::fill(size_t most) {
  char some[4096];
  while (received_.size() < most) {
    const size_t room = std::min(sizeof some, most - received_.size());
    const ssize_t got = recv(fd_.get(), some, room, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return got < 0 && errno == EAGAIN;
    received_.insert(received_.end(), some, some + got);
    if (static_cast<size_t>(got) < room) return true;  // no more available
  }
  return true;
}

bool Stream::take(void* bytes, size_t n) {
  if (received_.size() < n) return false;
  std::memcpy(bytes, received_.data(), n);
  received_.erase(received_.begin(), received_.begin() + static_cast<std::ptrdiff_t>(n));
  return true;
}

Stream::Wait Stream::await(void* bytes, size_t n, int64_t deadline_ns, int wake_fd) {
  const int64_t sleeps_from = os::now_ns() + kLookAgainNs;
  for (;;) {
    if (take(bytes, n)) return Wait::all;
    const bool goes_on = fill(std::max(n, kAheadBytes));
    if (take(bytes, n)) return Wait::all;
    if (!goes_on) return Wait::end;
    if (os::now_ns() < sleeps_from) {
      sched_yield();
      continue;
    }
    const Ready ready = wait_ready(fd_.get(), POLLIN, deadline_ns, wake_fd);
    if (ready != Ready::yes) return ready == Ready::woken ? Wait::woken : Wait::nothing;
  }
}

std::optional<Listener> Listener::at(const MeetingPlace& place, int64_t deadline_ns) {
  Resolved addresses = resolve(place, AI_PASSIVE, deadline_ns);
  while (addresses.failure == EAI_AGAIN && os::now_ns() < deadline_ns) {  // names of pods may resolve late
    usleep(kResolveAgainNs / 1000);
    Resolved again = resolve(place, AI_PASSIVE, deadline_ns);
    if (!again.is_late) addresses = std::move(again);  // else the last answer is the reason
  }
  if (addresses.failure != 0)
    fail(GSEL_ERR_IO, "rank 0 cannot listen at {}: {} is not known: {}; give an address of rank 0's host", place.text,
         place.host, addresses.why());
  Listener listener;
  int failure = 0;
  if (is_own_name(place, addresses.list.get()))
    failure = listener.add_everywhere(port_number(place));
  else
    for (const addrinfo* one = addresses.list.get(); one && failure != EADDRINUSE; one = one->ai_next)
      if (const int why = listener.add(one->ai_addr, one->ai_addrlen, false); why != 0) failure = why;
  if (failure == EADDRINUSE) return {};
  if (listener.fds_.empty())
    fail(GSEL_ERR_IO, "rank 0 cannot listen at {}: {}{}", place.text, errno_text(failure),
         failure == EADDRNOTAVAIL ? "; give an address of the host that rank 0 runs on" : "");
  return listener;
}

int Listener::add(const sockaddr* address, socklen_t length, bool both_versions) {
  os::Fd fd(socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return errno;
  const int on = 1, one_version = both_versions ? 0 : 1;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);  // connections of an earlier job may be in TIME_WAIT
  if (address->sa_family == AF_INET6) setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &one_version, sizeof one_version);
  if (bind(fd.get(), address, length) != 0 || listen(fd.get(), SOMAXCONN) != 0) return errno;
  fds_.emplace_back(std::move(fd));
  return 0;
}

int Listener::add_everywhere(uint16_t port) {
  sockaddr_in6 six = {};
  six.sin6_family = AF_INET6, six.sin6_port = htons(port);
  const int failure = add(reinterpret_cast<const sockaddr*>(&six), sizeof six, true);
  if (failure == 0 || failure == EADDRINUSE) return failure;
  sockaddr_in four = {};
  four.sin_family = AF_INET, four.sin_port = htons(port);
  return add(reinterpret_cast<const sockaddr*>(&four), sizeof four, false);
}

Listener Listener::at_any_port() {
  Listener listener;
  if (const int failure = listener.add_everywhere(0); failure != 0)
    fail(GSEL_ERR_IO, "no port to listen at for the other hosts: {}", errno_text(failure));
  return listener;
}

uint16_t Listener::port() const {
  sockaddr_storage address = {};
  socklen_t length = sizeof address;
  getsockname(fds_.front().get(), reinterpret_cast<sockaddr*>(&address), &length);
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                                             : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

std::optional<Stream> Listener::accept(const os::Fd& fd) {
  os::Fd accepted(accept4(fd.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!accepted) return {};
  return Stream(std::move(accepted));
}

std::optional<Stream> connect_to(const MeetingPlace& place, int64_t deadline_ns, std::string* why, int* out_failure) {
  const Resolved addresses = resolve(place, 0, deadline_ns);
  if (addresses.failure != 0) *why = fmt::format("{} is not known: {}", place.host, addresses.why());
  for (const addrinfo* one = addresses.list.get(); one; one = one->ai_next) {
    os::Fd fd = open_socket(*one);
    int failure = fd && connect(fd.get(), one->ai_addr, one->ai_addrlen) == 0 ? 0 : errno;
    if (failure == EINPROGRESS) {
      socklen_t length = sizeof failure;
      if (!is_ready(fd.get(), POLLOUT, std::min(deadline_ns, os::now_ns() + kTryNs)))
        failure = ETIMEDOUT;
      else
        getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &failure, &length);
    }
    if (failure == 0) return Stream(std::move(fd));
    if (out_failure) *out_failure = failure;
    *why = fmt::format("{}: {}", address_text(one->ai_addr, one->ai_addrlen), errno_text(failure));
  }
  return {};
}

std::optional<Stream> begin_connecting(const MeetingPlace& place, int* failure) {
  const Resolved addresses = resolve(place, 0, os::now_ns() + kTryNs);
  *failure = EHOSTUNREACH;
  if (addresses.failure != 0) return {};
  const addrinfo& first = *addresses.list;
  os::Fd fd = open_socket(first);
  *failure = fd && connect(fd.get(), first.ai_addr, first.ai_addrlen) == 0 ? 0 : errno;
  if (*failure != 0 && *failure != EINPROGRESS) return {};
  return Stream(std::move(fd));
}

}  // namespace gsel::hosts
