// plugins/transport/gloo/address.cc: see address.h.
#include "address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>

namespace gsel_gloo {
namespace {

using gsel_between::exchanged;
using gsel_between::fail;

// A rank's network namespace and addresses. Exchanged as raw bytes.
struct Seat {
  char boot[40];      // boot id of the kernel; empty: unknown
  uint64_t space[2];  // network namespace
  uint32_t is_named;  // by GSEL_INTERFACE
  uint32_t met_by;    // 4 or 6: the ranks have met at v4 or v6; 0: at neither
  uint32_t has_v4, has_v6;
  sockaddr_in v4;
  sockaddr_in6 v6;
  char error[300];
};

bool same_network(const Seat& a, const Seat& b) {
  return a.boot[0] && !memcmp(a.boot, b.boot, sizeof a.boot) && !memcmp(a.space, b.space, sizeof a.space);
}

void find_out_where(Seat& seat) {
  struct stat info {};
  FILE* file = fopen("/proc/sys/kernel/random/boot_id", "re");
  if (!file) return;
  const bool is_read = fgets(seat.boot, sizeof seat.boot, file) && stat("/proc/self/ns/net", &info) == 0;
  fclose(file);
  if (!is_read) seat.boot[0] = '\0';
  seat.space[0] = info.st_dev, seat.space[1] = info.st_ino;
}

// Networks inside one host: used only if there is nothing else.
bool is_inner(std::string_view name) {
  for (const char* start : {"docker", "virbr", "veth", "br-", "cni", "flannel"})
    if (name.starts_with(start)) return true;
  return false;
}

bool is_link_local(const sockaddr* address) {
  if (address->sa_family == AF_INET)
    return (ntohl(reinterpret_cast<const sockaddr_in*>(address)->sin_addr.s_addr) >> 16) == 0xa9fe;
  return IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
}

void take(Seat& seat, const sockaddr* address) {
  if (address->sa_family == AF_INET && !seat.has_v4) memcpy(&seat.v4, address, sizeof seat.v4), seat.has_v4 = 1;
  if (address->sa_family == AF_INET6 && !seat.has_v6) memcpy(&seat.v6, address, sizeof seat.v6), seat.has_v6 = 1;
}

void look_at_interfaces(Seat& seat, const char* named) {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) {
    snprintf(seat.error, sizeof seat.error, "the network interfaces cannot be listed: %s", strerror(errno));
    return;
  }
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> all(first, freeifaddrs);
  std::string names;
  for (const bool inner : {false, true})
    for (const ifaddrs* one = first; one; one = one->ifa_next) {
      const std::string_view name = one->ifa_name;
      if (!one->ifa_addr || !(one->ifa_flags & IFF_UP)) continue;
      if (one->ifa_addr->sa_family != AF_INET && one->ifa_addr->sa_family != AF_INET6) continue;
      if (!inner && (", " + names + ",").find(", " + std::string(name) + ",") == std::string::npos)
        names += (names.empty() ? "" : ", ") + std::string(name);
      if (named ? name != named : (one->ifa_flags & IFF_LOOPBACK) || is_inner(name) != inner) continue;
      if (!is_link_local(one->ifa_addr)) take(seat, one->ifa_addr);
    }
  if (seat.has_v4 || seat.has_v6) return;
  if (names.empty()) names = "none";
  if (named)
    snprintf(seat.error, sizeof seat.error, "GSEL_INTERFACE=%.40s has no address; up and with one: %.200s", named,
             names.c_str());
  else
    snprintf(seat.error, sizeof seat.error, "no interface leads to other hosts; up and with an address: %.200s",
             names.c_str());
}

bool is_loopback(const sockaddr* address) {
  if (address->sa_family == AF_INET)
    return (ntohl(reinterpret_cast<const sockaddr_in*>(address)->sin_addr.s_addr) >> 24) == 127;
  return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
}

// Uses the address at which other hosts have reached this one, if it is numeric: a name may resolve to loopback here.
void take_where_met(Seat& seat, const std::string& address) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_flags = AI_NUMERICHOST;
  if (address.empty() || getaddrinfo(address.c_str(), nullptr, &hints, &found) != 0) return;
  if (!is_loopback(found->ai_addr) && !is_link_local(found->ai_addr)) {
    const bool is_v4 = found->ai_addr->sa_family == AF_INET;
    (is_v4 ? seat.has_v4 : seat.has_v6) = 0;
    take(seat, found->ai_addr);
    seat.met_by = is_v4 ? 4 : 6;
  }
  freeaddrinfo(found);
}

std::string text_of(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address->sa_family == AF_INET)
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, text, sizeof text);
  else
    inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr, text, sizeof text);
  return text;
}

void set_port(sockaddr_in& address, in_port_t port) {
  address.sin_port = port;
}
void set_port(sockaddr_in6& address, in_port_t port) {
  address.sin6_port = port;
}

// The source address of the route to another host, without sending anything.
template <class Address>
std::string way_to(Address to, const Address& own) {
  const auto* as_any = reinterpret_cast<const sockaddr*>(&to);
  set_port(to, htons(9));
  sockaddr_storage from{};
  socklen_t bytes = sizeof from;
  const int fd = socket(as_any->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const bool known = fd >= 0 && connect(fd, as_any, sizeof to) == 0 &&
                     getsockname(fd, reinterpret_cast<sockaddr*>(&from), &bytes) == 0 &&
                     !is_link_local(reinterpret_cast<sockaddr*>(&from));
  if (fd >= 0) close(fd);
  return text_of(reinterpret_cast<const sockaddr*>(known ? static_cast<const void*>(&from) : &own));
}

}  // namespace

std::string agree_on_address(const gsel_join& join) {
  Seat mine{};
  const char* named = secure_getenv("GSEL_INTERFACE");
  if (named && !*named) named = nullptr;
  mine.is_named = named ? 1 : 0;
  find_out_where(mine);
  look_at_interfaces(mine, named);
  if (!named) take_where_met(mine, {join.address.data ? join.address.data : "", join.address.len});
  const std::vector<Seat> all = exchanged(join, mine);
  bool is_one_host = true, has_v4 = true, has_v6 = true, met_by_v4 = false, met_by_v6 = false;
  const Seat* other = nullptr;  // another host, to find the route; preferably one with met_by
  for (const Seat& seat : all) {
    is_one_host = is_one_host && same_network(seat, all[0]) && !seat.is_named;
    met_by_v4 = met_by_v4 || seat.met_by == 4;
    met_by_v6 = met_by_v6 || seat.met_by == 6;
    if (!same_network(seat, mine) && (!other || (seat.met_by != 0 && other->met_by == 0))) other = &seat;
  }
  if (is_one_host) return "127.0.0.1";
  for (size_t r = 0; r < all.size(); ++r) {
    if (all[r].error[0]) fail(GSEL_ERR_ARG, "gloo cannot join: rank " + std::to_string(r) + ": " + all[r].error);
    has_v4 = has_v4 && all[r].has_v4;
    has_v6 = has_v6 && all[r].has_v6;
  }
  if (!has_v4 && !has_v6)
    fail(GSEL_ERR_ARG, "gloo cannot join: some ranks have IPv4 alone and others IPv6 alone; GSEL_INTERFACE names one");
  const bool by_v4 = has_v4 && (!has_v6 || met_by_v4 || !met_by_v6);
  const auto* own = by_v4 ? reinterpret_cast<const sockaddr*>(&mine.v4) : reinterpret_cast<const sockaddr*>(&mine.v6);
  if (mine.is_named || mine.met_by == (by_v4 ? 4 : 6) || !other) return text_of(own);
  return by_v4 ? way_to(other->v4, mine.v4) : way_to(other->v6, mine.v6);
}

}  // namespace gsel_gloo
