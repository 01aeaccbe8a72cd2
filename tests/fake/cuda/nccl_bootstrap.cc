// fake/cuda/nccl_bootstrap.cc: see nccl_bootstrap.h.
#include "nccl_bootstrap.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <functional>
#include <memory>
#include <sstream>
#include <string_view>

#include "nccl_comm.h"

namespace fake_nccl {
namespace {

constexpr int kConnectMs = 2000;

bool is_admitted(std::string_view name, std::string_view given) {
  const bool excludes = given.starts_with('^');
  if (excludes) given.remove_prefix(1);
  const bool is_exact = given.starts_with('=');
  if (is_exact) given.remove_prefix(1);
  bool matches = false;
  std::istringstream words{std::string(given)};
  for (std::string word; std::getline(words, word, ',');)
    matches = matches || (is_exact ? name == word : name.starts_with(word));
  return matches != excludes;
}

// By default: 0 the first to be taken, then 1.
int order_of(std::string_view name) {
  for (const char* inner : {"docker", "lo", "virbr"})
    if (name.starts_with(inner)) return 1;
  return 0;
}

struct Chosen {
  std::string name;
  in_addr address{};
};

Chosen choose() {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return {};
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> all(first, freeifaddrs);
  const std::string given = text_in("NCCL_SOCKET_IFNAME");
  for (const int order : {0, 1})
    for (const ifaddrs* one = first; one; one = one->ifa_next) {
      if (!one->ifa_addr || one->ifa_addr->sa_family != AF_INET || !(one->ifa_flags & IFF_UP)) continue;
      if (given.empty() ? order_of(one->ifa_name) != order : !is_admitted(one->ifa_name, given)) continue;
      return {one->ifa_name, reinterpret_cast<const sockaddr_in*>(one->ifa_addr)->sin_addr};
    }
  return {};
}

}  // namespace

std::string bootstrap_interface() {
  return choose().name;
}

Listening bootstrap_listen() {
  const Chosen chosen = choose();
  if (chosen.name.empty()) return {};
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr = chosen.address;
  socklen_t length = sizeof address;
  auto* at = reinterpret_cast<sockaddr*>(&address);
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0 || bind(fd, at, length) != 0 || listen(fd, 8) != 0 || getsockname(fd, at, &length) != 0) {
    if (fd >= 0) close(fd);
    return {};
  }
  return {fd, address.sin_addr.s_addr, address.sin_port};
}

bool bootstrap_reaches(uint32_t to, uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = to;
  address.sin_port = port;
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  int failure = connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ? 0 : errno;
  if (failure == EINPROGRESS) {
    pollfd item{fd, POLLOUT, 0};
    socklen_t length = sizeof failure;
    if (poll(&item, 1, kConnectMs) == 1) getsockopt(fd, SOL_SOCKET, SO_ERROR, &failure, &length);
  }
  close(fd);
  return failure == 0;
}

uint64_t bootstrap_host() {
  std::string host = text_in("NCCL_HOSTID");
  if (host.empty()) {
    char name[256] = "", boot[64] = "";
    gethostname(name, sizeof name - 1);
    if (FILE* file = fopen("/proc/sys/kernel/random/boot_id", "re")) {
      if (!fgets(boot, sizeof boot, file)) boot[0] = '\0';
      fclose(file);
    }
    host = std::string(name) + boot;
  }
  return std::hash<std::string>()(host);
}

}  // namespace fake_nccl
