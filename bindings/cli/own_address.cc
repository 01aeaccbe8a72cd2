// own_address.cc: see own_address.h.
#include "own_address.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <sstream>
#include <vector>

namespace gsel::cli {
namespace {

// The same choice as that of rank 0 (lib/comm/hosts/endpoint.cc): IPv4 addresses before IPv6, those of containers and
// virtual machines last.
struct Found {
  std::string text;
  bool is_virtual, is_v6;
};

bool is_of_machine_inside(const std::string& interface) {
  for (const char* prefix : {"docker", "virbr", "veth", "br-", "cni", "flannel"})
    if (interface.starts_with(prefix)) return true;
  return false;
}

}  // namespace

std::string address_of_connection() {
  const char* connection = std::getenv("SSH_CONNECTION");  // client, its port, server, its port
  std::istringstream words(connection ? connection : "");
  std::string client, port, server;
  words >> client >> port >> server;
  return server.find('%') == server.npos ? server : std::string();  // link-local: only valid on one interface
}

std::string address_of_interface() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owned(list, freeifaddrs);
  const char* wanted = std::getenv("GSEL_INTERFACE");
  std::vector<Found> found;
  for (const ifaddrs* one = list; one; one = one->ifa_next) {
    if (!one->ifa_addr || (one->ifa_flags & IFF_UP) == 0 || (one->ifa_flags & IFF_LOOPBACK) != 0) continue;
    const int family = one->ifa_addr->sa_family;
    if ((family != AF_INET && family != AF_INET6) || (wanted && *wanted && one->ifa_name != std::string(wanted)))
      continue;
    char text[NI_MAXHOST];
    const socklen_t length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    if (getnameinfo(one->ifa_addr, length, text, sizeof text, nullptr, 0, NI_NUMERICHOST) != 0) continue;
    const std::string address = text;
    if (address.starts_with("169.254.") || address.find('%') != address.npos) continue;
    found.push_back({address, is_of_machine_inside(one->ifa_name), family == AF_INET6});
  }
  std::ranges::stable_sort(found, {}, [](const Found& one) { return 2 * one.is_virtual + one.is_v6; });
  return found.empty() ? std::string() : found.front().text;
}

HeldPort::HeldPort() {
  for (const int family : {AF_INET6, AF_INET}) {
    fd_ = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd_ < 0) continue;
    const int on = 1, off = 0;
    setsockopt(fd_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (family == AF_INET6) setsockopt(fd_, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    sockaddr_in6 any = {};  // any address, port 0
    any.sin6_family = static_cast<sa_family_t>(family);
    socklen_t length = family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
    auto* address = reinterpret_cast<sockaddr*>(&any);
    if (bind(fd_, address, length) == 0 && getsockname(fd_, address, &length) == 0) {
      number_ = ntohs(any.sin6_port);  // at the same offset in IPv4 and IPv6
      return;
    }
    close(fd_);
    fd_ = -1;
  }
}

HeldPort::~HeldPort() {
  if (fd_ >= 0) close(fd_);
}

}  // namespace gsel::cli
