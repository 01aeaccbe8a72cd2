// comm/shm/join/socket.cc: see socket.h.
#include "comm/shm/join/socket.h"

#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/os.h"

namespace gsel::shm {
namespace {

os::Fd open_socket() {
  os::Fd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) fail(GSEL_ERR_IO, "socket(AF_UNIX) failed: {}", errno_text(errno));
  return fd;
}

socklen_t fill_address(sockaddr_un& address, const std::string& name) {
  address = {};
  address.sun_family = AF_UNIX;
  const size_t length = std::min(name.size(), sizeof address.sun_path - 1);
  std::memcpy(address.sun_path + 1, name.data(), length);
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
}

// Takes all descriptors that came with a message, so that none leaks.
void take_fds(msghdr& header, std::vector<os::Fd>& fds) {
  for (cmsghdr* part = CMSG_FIRSTHDR(&header); part; part = CMSG_NXTHDR(&header, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof fd, sizeof fd);
      fds.emplace_back(fd);
    }
  }
}

bool wait_until(int fd, short events, int64_t deadline_ns) {
  pollfd item{.fd = fd, .events = events, .revents = 0};
  for (;;) {
    const int ready = poll(&item, 1, milliseconds_until(deadline_ns));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) fail(GSEL_ERR_IO, "poll failed: {}", errno_text(errno));
    if (os::now_ns() >= deadline_ns) return false;
  }
}

union Control {
  cmsghdr align;
  char bytes[CMSG_SPACE(kMostFds * sizeof(int))];
};

}  // namespace

void fail_cut() {
  fail(GSEL_ERR_IO, "descriptors of a joining rank did not arrive; raise the limit of open files (ulimit -n)");
}

int milliseconds_until(int64_t deadline_ns) noexcept {
  const int64_t left = std::clamp<int64_t>(deadline_ns - os::now_ns(), 0, int64_t{1'000'000'000'000});
  return static_cast<int>((left + 999'999) / 1'000'000);
}

std::optional<Socket> Socket::listen(const std::string& name) {
  os::Fd fd = open_socket();
  sockaddr_un address;
  const socklen_t length = fill_address(address, name);
  if (bind(fd.get(), reinterpret_cast<sockaddr*>(&address), length) != 0) {
    if (errno == EADDRINUSE) return {};
    fail(GSEL_ERR_IO, "bind of abstract socket {} failed: {}", name, errno_text(errno));
  }
  if (::listen(fd.get(), SOMAXCONN) != 0) fail(GSEL_ERR_IO, "listen on {} failed: {}", name, errno_text(errno));
  return Socket(std::move(fd));
}

std::optional<Socket> Socket::connect(const std::string& name, bool* is_full) {
  os::Fd fd = open_socket();
  sockaddr_un address;
  const socklen_t length = fill_address(address, name);
  if (::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), length) == 0) return Socket(std::move(fd));
  if (is_full) *is_full = errno == EAGAIN;
  if (errno == ECONNREFUSED || errno == EAGAIN || errno == EINTR) return {};
  fail(GSEL_ERR_IO, "connect to abstract socket {} failed: {}", name, errno_text(errno));
}

std::optional<Socket> Socket::accept() const {
  os::Fd fd(accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (fd) return Socket(std::move(fd));
  if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED) return {};
  fail(GSEL_ERR_IO, "accept failed: {}", errno_text(errno));
}

uid_t Socket::peer_user() const {
  ucred peer{};
  socklen_t length = sizeof peer;
  if (getsockopt(fd_.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0)
    fail(GSEL_ERR_IO, "SO_PEERCRED failed: {}", errno_text(errno));
  return peer.uid;
}

bool Socket::write(const void* message, size_t bytes, const int* fds, size_t n_fds, int64_t deadline_ns) const {
  Control control{};
  iovec part{const_cast<void*>(message), bytes};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (n_fds > 0) {
    header.msg_control = control.bytes;
    header.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(n_fds * sizeof(int));
    std::memcpy(CMSG_DATA(rights), fds, n_fds * sizeof(int));
  }
  for (;;) {
    if (sendmsg(fd_.get(), &header, MSG_NOSIGNAL) >= 0) return true;
    if (errno == EPIPE || errno == ECONNRESET || errno == ENOTCONN) return false;
    if (errno != EAGAIN && errno != EINTR)
      fail(GSEL_ERR_IO, "sendmsg of {} descriptors failed: {}", n_fds, errno_text(errno));
    if (!wait_until(fd_.get(), POLLOUT, deadline_ns))
      fail(GSEL_ERR_TIMEOUT, "timed out: a joining rank took no message");
  }
}

Read Socket::read(void* message, size_t bytes, std::vector<os::Fd>& fds) const {
  fds.reserve(fds.size() + kMostFds);  // so that no allocation fails after descriptors have arrived
  // A side that closes with unread messages resets the connection once; its messages can still be read. A first end may
  // be false, too: Linux checks for a message, then for the close, and both may arrive in between.
  for (int resets = 0, ends = 0; resets < 2;) {
    Control control{};
    iovec part{message, bytes};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control.bytes;
    header.msg_controllen = sizeof control.bytes;
    const ssize_t got = recvmsg(fd_.get(), &header, MSG_CMSG_CLOEXEC);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return Read::nothing;
    if (got < 0 && errno == ECONNRESET) {
      ++resets;
      continue;
    }
    if (got < 0) fail(GSEL_ERR_IO, "recvmsg failed: {}", errno_text(errno));
    if (got == 0 && ends++ == 0) continue;
    take_fds(header, fds);
    if (static_cast<size_t>(got) != bytes || (header.msg_flags & MSG_TRUNC)) return Read::end;
    return header.msg_flags & MSG_CTRUNC ? Read::cut : Read::message;
  }
  return Read::end;
}

Read Socket::read_until(void* message, size_t bytes, std::vector<os::Fd>& fds, int64_t deadline_ns) const {
  for (;;) {
    const Read result = read(message, bytes, fds);
    if (result == Read::cut) fail_cut();
    if (result != Read::nothing) return result;
    if (!wait_until(fd_.get(), POLLIN, deadline_ns)) return Read::nothing;
  }
}

// ---- which user holds a name ----------------------------------------------------------------------------------------
// The kernel lists the listening local sockets over a sock_diag netlink socket; each entry is a message with
// attributes, of which the name and the user are read.

namespace {

constexpr uint32_t kListening = 1u << 10;  // TCP_LISTEN, for sockets of every kind
constexpr size_t kAnswerBytes = 32768;

bool ask(int fd) {
  struct {
    nlmsghdr header;
    unix_diag_req wanted;
  } question{};
  question.header.nlmsg_len = sizeof question;
  question.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  question.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
  question.wanted.sdiag_family = AF_UNIX;
  question.wanted.udiag_states = kListening;
  question.wanted.udiag_show = UDIAG_SHOW_NAME | UDIAG_SHOW_UID;
  return send(fd, &question, sizeof question, 0) == static_cast<ssize_t>(sizeof question);
}

// The user in an entry that has the name.
std::optional<uid_t> user_in(nlmsghdr* entry, std::string_view name) {
  auto* message = static_cast<unix_diag_msg*>(NLMSG_DATA(entry));
  auto* part = reinterpret_cast<rtattr*>(message + 1);
  int left = static_cast<int>(entry->nlmsg_len) - static_cast<int>(NLMSG_LENGTH(sizeof *message));
  bool is_it = false;
  std::optional<uid_t> user;
  for (; RTA_OK(part, left); part = RTA_NEXT(part, left)) {
    const std::string_view data(static_cast<const char*>(RTA_DATA(part)), RTA_PAYLOAD(part));
    if (part->rta_type == UNIX_DIAG_NAME)
      is_it = !data.empty() && data.front() == '\0' && data.substr(1) == name;
    else if (part->rta_type == UNIX_DIAG_UID && data.size() == sizeof(uint32_t))
      std::memcpy(&user.emplace(), data.data(), sizeof(uint32_t));
  }
  return is_it ? user : std::nullopt;
}

}  // namespace

std::optional<uid_t> user_of_listener(const std::string& name) {
  const os::Fd fd(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
  if (!fd || !ask(fd.get())) return {};
  std::optional<uid_t> found;
  std::vector<char> answer(kAnswerBytes);
  for (;;) {
    const ssize_t got = recv(fd.get(), answer.data(), answer.size(), 0);
    if (got <= 0) return found;
    auto left = static_cast<uint32_t>(got);
    for (auto* entry = reinterpret_cast<nlmsghdr*>(answer.data()); NLMSG_OK(entry, left);
         entry = NLMSG_NEXT(entry, left)) {
      if (entry->nlmsg_type == NLMSG_DONE || entry->nlmsg_type == NLMSG_ERROR) return found;
      if (!found) found = user_in(entry, name);
    }
  }
}

}  // namespace gsel::shm
