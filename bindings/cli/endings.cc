// endings.cc: see endings.h. lib/comm/shm/join/launcher.cc reads the lines.
#include "endings.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>

namespace gsel::cli {
namespace {

constexpr size_t kLineBytes = 128;

bool is_of_this_user(int fd) {
  ucred peer{};
  socklen_t length = sizeof peer;
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == geteuid();
}

void send_line(int fd, const std::string& line) {
  static_cast<void>(send(fd, line.data(), line.size(), MSG_NOSIGNAL | MSG_DONTWAIT));
}

}  // namespace

Endings::Endings(const std::string& job) {
  const std::string name = "gsel-run-1-" + job;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  name.copy(address.sun_path + 1, sizeof address.sun_path - 1);
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  listener_ = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (listener_ >= 0 && bind(listener_, reinterpret_cast<sockaddr*>(&address), length) == 0 &&
      listen(listener_, SOMAXCONN) == 0)
    return;
  if (listener_ >= 0) close(listener_);
  listener_ = -1;
}

Endings::~Endings() {
  for (const int fd : ranks_) close(fd);
  if (listener_ >= 0) close(listener_);
}

void Endings::tell(std::string line) {
  line.resize(kLineBytes - 1);
  line.push_back('\0');
  for (const int fd : ranks_) send_line(fd, line);
  lines_.push_back(std::move(line));
}

void Endings::add_to(std::vector<pollfd>& polls) const {
  if (listener_ >= 0) polls.push_back({listener_, POLLIN, 0});
  for (const int fd : ranks_) polls.push_back({fd, POLLIN, 0});
}

void Endings::serve(const std::vector<pollfd>& polls) {
  for (const pollfd& poll : polls) {
    if (!poll.revents || poll.fd == listener_) continue;
    if (std::erase(ranks_, poll.fd) > 0) close(poll.fd);  // ranks send nothing: it has joined or given up
  }
  for (const pollfd& poll : polls)
    if (poll.revents && poll.fd == listener_) admit();
}

void Endings::admit() {
  for (int fd; (fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0;) {
    if (!is_of_this_user(fd)) {
      close(fd);
      continue;
    }
    for (const std::string& line : lines_) send_line(fd, line);
    ranks_.push_back(fd);
  }
}

}  // namespace gsel::cli
