// support/counted_traffic.h: counts what a program and the processes that it forks say over sockets, by phases. Stands
// in front of the system's own calls, so one file of a program includes it. What libgsel says counts where it is linked
// into the program (gsel_inside).
#pragma once

#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>

namespace gsel::test {

struct Traffic {
  std::atomic<uint64_t> bytes, messages, connections;
};
// Between hosts, and between the ranks of one host.
struct PhaseTraffic {
  Traffic tcp, local;
};

constexpr int kPhases = 4;
struct Counted {
  std::atomic<int32_t> phase, hosts_have_one_name;
  PhaseTraffic phases[kPhases];
};

inline Counted& counted() {
  static auto* const shared =
      static_cast<Counted*>(mmap(nullptr, sizeof(Counted), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  return *shared;
}

inline Traffic* traffic_of(int fd) {
  int family = 0;
  socklen_t length = sizeof family;
  if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &length) != 0) return nullptr;
  PhaseTraffic& phase = counted().phases[counted().phase.load(std::memory_order_relaxed)];
  return family == AF_UNIX ? &phase.local : &phase.tcp;
}

inline void count_sent(int fd, int64_t sent) {
  Traffic* traffic = sent > 0 ? traffic_of(fd) : nullptr;
  if (!traffic) return;
  traffic->bytes += static_cast<uint64_t>(sent);
  ++traffic->messages;
}

}  // namespace gsel::test

extern "C" {

inline __attribute__((used, visibility("default"))) ssize_t send(int fd, const void* bytes, size_t n, int flags) {
  const int64_t sent = syscall(SYS_sendto, fd, bytes, n, flags, nullptr, 0);
  gsel::test::count_sent(fd, sent);
  return sent;
}

inline __attribute__((used, visibility("default"))) ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  const int64_t sent = syscall(SYS_sendmsg, fd, message, flags);
  gsel::test::count_sent(fd, sent);
  return sent;
}

inline __attribute__((used, visibility("default"))) int connect(int fd, const sockaddr* address, socklen_t length) {
  const long status = syscall(SYS_connect, fd, address, length);
  const int failure = errno;
  if (status == 0 || failure == EINPROGRESS)
    if (auto* traffic = gsel::test::traffic_of(fd)) ++traffic->connections;
  errno = failure;
  return static_cast<int>(status);
}

}  // extern "C"
