// comm/hosts/announcing.cc: announces calls that a transport of devices makes on a stream; see hosts_control.h and
// announcer.h.
#include <utility>

#include "base/error.h"
#include "base/os.h"
#include "comm/call/collective.h"
#include "comm/hosts/hosts_control.h"
#include "comm/shm/call/plan.h"

namespace gsel::hosts {
namespace {

struct Ports {
  uint16_t of_host, of_hosts;  // for the ranks of the host; on the first host, for the first ranks of the others
};

}  // namespace

// Makes separate connections: to the first rank of the host, and from there towards the first host.
void HostsControl::begin_announcing() {
  std::optional<Listener> here, hosts;
  Ports own{};
  if (roster_.leads()) {
    here = Listener::at_any_port();
    own.of_host = here->port();
    if (roster_.own_host() == 0) hosts = Listener::at_any_port();
    if (hosts) own.of_hosts = hosts->port();
  }
  std::vector<Ports> ports(roster_.ranks());
  exchange(&own, ports.data(), sizeof own, "announcing", join_timeout_s_);
  const int64_t deadline_ns = os::now_ns() + static_cast<int64_t>(join_timeout_s_ * 1e9);
  gsel_unique_id of_host = roster_.table().job, of_hosts = of_host;
  of_host.bytes[0] ^= 1, of_hosts.bytes[0] ^= 2;
  of_host.bytes[1] ^= static_cast<uint8_t>(roster_.own_host());
  std::vector<std::string> names;
  for (const int32_t q : roster_.here()) names.push_back(roster_.named(q));
  const HostTable& table = roster_.table();
  const std::vector<std::string> here_address{"127.0.0.1"};
  const Tree ranks_here{roster_.here().size(), roster_.here().size()};
  const auto port_of = [&](int32_t q) { return ports[static_cast<size_t>(q)]; };
  const Lines in_host{facts_->secret,  of_host,      ranks_here,
                      names,           here_address, port_of(roster_.here().front()).of_host,
                      join_timeout_s_, deadline_ns};
  const Lines between{facts_->secret,  of_hosts,        roster_.tree(),
                      table.names,     table.addresses, port_of(roster_.on(0).front()).of_hosts,
                      join_timeout_s_, deadline_ns};
  std::optional<Stream> up;
  std::vector<Stream> down;
  const auto take = [&](std::vector<std::optional<Line>> lines, size_t above, bool has_above) {
    for (size_t i = 0; i < lines.size(); ++i) {
      if (!lines[i]) continue;
      if (has_above && i == above)
        up = std::move(lines[i]->calls);
      else
        down.push_back(std::move(lines[i]->calls));
    }
  };
  try {
    take(connect_lines(in_host, static_cast<size_t>(roster_.local_rank()), here), 0, !roster_.leads());
    const size_t host = roster_.own_host();
    if (roster_.leads())
      take(connect_lines(between, host, hosts), host == 0 ? 0 : roster_.tree().above(host), host != 0);
  } catch (...) {  // other ranks wait for this one
    local_->break_with(current_error());
    throw;
  }
  if (announcer_) announcer_->abandon();  // from before a resync
  announcer_ = std::make_unique<Announcer>(roster_, *local_, std::move(up), std::move(down));
}

void HostsControl::announce(const gsel_collective& given, RegisteredPlace in) {
  require_own_process(fork_generation_, collective_name(given.kind));
  local_->throw_break_reason();
  const auto ranks = static_cast<int32_t>(roster_.ranks());
  shm::Call call;
  shm::complete(given, ranks, static_cast<int64_t>(timeout_s_ * 1e9), call, false,
                in.is_registered ? shm::CallOrigin::enqueued_registered : shm::CallOrigin::enqueued);
  call.detail ^= in.offsets;
  Announcement announcement;
  announcement.head = head_of(call, 0);
  announcement.collectives = is_point_to_point(call.kind) ? 0 : 1;
  announcement.recv_count = call.recv_count;
  announcement.source = call.source;
  announcement.tag = given.tag;
  announcement.registered = in.is_registered;
  announcement.timeout_s = static_cast<double>(call.timeout_ns) * 1e-9;
  std::vector<uint64_t> counts;
  if (call.kind == GSEL_COLLECTIVE_ALLTOALLV)
    for (const uint64_t* one : {call.send_counts, call.recv_counts}) counts.insert(counts.end(), one, one + ranks);
  announcer_->announce(announcement, counts);
  const bool receives = call.kind == GSEL_COLLECTIVE_RECV;
  backend_.count(call.kind, is_point_to_point(call.kind) ? (receives ? 0 : call.count * call.element)
                                                         : shm::Plan(call, rank(), ranks).sent_bytes());
  local_->throw_break_reason();
}

void HostsControl::check_announced() const {
  require_own_process(fork_generation_, "gsel_comm_get_async_error");
  local_->check_announced();
  if (announcer_) announcer_->progress();
}

}  // namespace gsel::hosts
