// plugins/transport/nccl/joining.cc: see joining.h.
#include "joining.h"

#include <ifaddrs.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "transport/common/interface.h"

namespace gsel_nccl {
namespace {

// Empty: not set, or ignored in a setuid program.
std::string variable(const char* name) {
  const char* value = secure_getenv(name);
  return value ? value : "";
}

// Whether NCCL_SOCKET_IFNAME admits an interface: a list of prefixes; "=" before it: of exact names; "^": of excluded
// ones. A port may follow a name.
bool admits(const std::string& value, const std::string& interface) {
  size_t at = 0;
  const bool excludes = value[at] == '^';
  at += excludes;
  const bool is_exact = value[at] == '=';
  at += is_exact;
  bool matches = false;
  while (at < value.size()) {
    const size_t end = std::min(value.find(',', at), value.size());
    const std::string word = value.substr(at, std::min(value.find(':', at), end) - at);
    matches = matches || (is_exact ? interface == word : !word.empty() && interface.compare(0, word.size(), word) == 0);
    at = end + 1;
  }
  return matches != excludes;
}

// The interface that NCCL uses with this value of NCCL_SOCKET_IFNAME, the first that it admits; or "none".
std::string taken_by(const std::string& value) {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return "none";
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> all(first, freeifaddrs);
  for (const ifaddrs* one = first; one; one = one->ifa_next) {
    const int family = one->ifa_addr && (one->ifa_flags & IFF_UP) ? one->ifa_addr->sa_family : AF_UNSPEC;
    if ((family == AF_INET || family == AF_INET6) && admits(value, one->ifa_name)) return one->ifa_name;
  }
  return "none";
}

void tell_interface() {
  const std::string interface = variable("GSEL_INTERFACE");
  if (interface.empty()) return;
  if (const std::string why = gsel_between::why_no_interface(); !why.empty()) fail(GSEL_ERR_ARG, why);
  const std::string given = variable("NCCL_SOCKET_IFNAME");
  if (given.size() < 2) {  // NCCL ignores a shorter value
    setenv("NCCL_SOCKET_IFNAME", ("=" + interface).c_str(), 1);
    return;
  }
  const std::string taken = taken_by(given);
  if (taken != interface)
    fail(GSEL_ERR_ARG, "GSEL_INTERFACE=" + interface + " and NCCL_SOCKET_IFNAME=" + given +
                           ", by which " GSEL_NCCL " takes " + taken +
                           "; set either, or let both name one interface");
}

std::mutex& environment() {
  static std::mutex the_mutex;
  return the_mutex;
}

// Any thread.
void tell_environment() {
  const std::lock_guard lock(environment());
  tell_interface();
  const std::string host = variable("GSEL_HOST_ID");
  if (!host.empty() && variable("NCCL_HOSTID").empty()) setenv("NCCL_HOSTID", host.c_str(), 1);
}

}  // namespace

// NCCL reads the variable once, so a program that has used NCCL before may have had another value read.
LaunchOrder ask_for_order(const Library& nccl, int version) {
  constexpr int kSince = 22600;
  constexpr const char* kName = "NCCL_LAUNCH_ORDER_IMPLICIT";
  const std::string by_events =
      ": calls of several communicators of a trainer wait for each other by events and do not overlap";
  if (!kKeepsLaunchOrder) return {false, GSEL_NCCL " keeps no order of launches over communicators" + by_events};
  if (version < kSince) return {false, "NCCL before 2.26 keeps no order of launches over communicators" + by_events};
  const std::lock_guard lock(environment());
  const std::string given = variable(kName);
  if (!given.empty())
    return atoi(given.c_str()) != 0 ? LaunchOrder{true, std::string(kName) + "=" + given}
                                    : LaunchOrder{false, std::string(kName) + "=" + given + by_events};
  if (nccl.was_loaded)
    return {false, std::string(kName) + " is not set, and " GSEL_NCCL " was loaded before it could be" + by_events};
  setenv(kName, "1", 1);
  return {true, std::string(kName) + "=1, set by gsel"};
}

// A failure of one rank is thrown on all.
UniqueId agree_on_id(const Library& nccl, const gsel_join& join) {
  struct Offer {
    UniqueId id;
    int result;
    gsel_status status;
    char why[500];
  } own{};
  try {
    tell_environment();
    if (join.rank == 0) own.result = nccl.ncclGetUniqueId(&own.id);
  } catch (const Failure& failure) {
    own.status = failure.status;
    std::snprintf(own.why, sizeof own.why, "%s", failure.text.c_str());
  }
  std::vector<Offer> all(static_cast<size_t>(join.world_size));
  must([&](gsel_error** err) { return join.control->exchange(join.control->ctx, &own, all.data(), sizeof own, err); });
  for (size_t q = 0; q < all.size(); ++q) {
    if (all[q].status == GSEL_OK) continue;
    const char none = 0;  // waits until all ranks know: the first rank to fail breaks the communicator
    std::vector<char> nothing(all.size());
    join.control->exchange(join.control->ctx, &none, nothing.data(), sizeof none, nullptr);
    fail(all[q].status, GSEL_NCCL_PLUGIN " cannot join: rank " + std::to_string(q) + ": " + all[q].why);
  }
  check(nccl, all[0].result, "making an id on rank 0");
  return all[0].id;
}

}  // namespace gsel_nccl
