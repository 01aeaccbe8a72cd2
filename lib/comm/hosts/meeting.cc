// comm/hosts/meeting.cc: see meeting.h.
#include "comm/hosts/meeting.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "comm/hosts/hosts_control.h"
#include "comm/hosts/wire.h"
#include "comm/shm/endpoint.h"

namespace gsel::hosts {
namespace {

std::unique_ptr<AddressStore> address_store_of(const Meeting& meeting) {
  switch (meeting.place.kind) {
    case MeetingPlace::Kind::address:
      return nullptr;
    case MeetingPlace::Kind::file:
      return file_store(meeting.place, meeting.job);
    case MeetingPlace::Kind::torchrun:
      return torchrun_store(meeting.place, meeting.job);
    case MeetingPlace::Kind::pmi:
      return pmi_store(meeting.place);
    case MeetingPlace::Kind::pmix:
      return pmix_store();
    case MeetingPlace::Kind::id:
      return id_store(*meeting.secret);
  }
  return nullptr;
}

}  // namespace

Greeting own_greeting(const Meeting& meeting) {
  Greeting own;
  own.rank = meeting.rank;
  own.world_size = meeting.world_size;
  own.pid = getpid();
  write_text(own.host, host_name());
  own.identity = key_of(host_identity());
  own.space = key_of(name_space());
  write_text(own.version, version_text());
  write_job(own.job, meeting.job_name);
  own.order = meeting.order;
  own.accelerator = meeting.accelerator;
  return own;
}

Met meet(const Meeting& meeting) {
  std::unique_ptr<AddressStore> address_store = address_store_of(meeting);
  return meeting.rank == 0 ? meet_as_root(meeting, std::move(address_store))
                           : meet_as_joiner(meeting, address_store.get());
}

// ---- joining --------------------------------------------------------------------------------------------------------

namespace {

constexpr double kReportSeconds = 2;
constexpr double kLeastLocalSeconds = 1;  // for the ranks of one host, which have all met already

// The secret: the caller's id, which only the ranks know; else the file named in GSEL_TOKEN_FILE; else nullopt: rank 0
// posts one where only the ranks can read it.
std::optional<Secret> secret_of(const JoinOptions& join, const MeetingPlace& place) {
  if (join.id_is_given) return Secret({std::begin(join.id.bytes), std::end(join.id.bytes)});
  const char* file = secure_getenv("GSEL_TOKEN_FILE");
  if (file && *file) return Secret::of_file(file);
  if (place.kind != MeetingPlace::Kind::address) return {};
  throw Error(
      GSEL_ERR_CONFIG,
      fmt::format("ranks are to meet at {} and have no token, without which anybody could join; name a file with "
                  "mode 600 that has the same 16 to 4096 bytes on every host in GSEL_TOKEN_FILE, or give every "
                  "rank the same id",
                  place.text))
      .at(Place{.file = "", .token = "GSEL_TOKEN_FILE"});
}

// Identifies this job's meeting among others at the same place. A hash, since an id is secret.
std::string job_of(const JoinOptions& join) {
  const Bytes32 hash = join.id_is_given ? sha256(bytes_of(join.id.bytes)) : key_of(join.launch + join.job);
  std::string text;
  for (size_t i = 0; i < 8; ++i) text += fmt::format("{:02x}", hash[i]);
  return text;
}

std::string hosts_text(const Roster& roster) {
  std::string text;
  for (size_t h = 0; h < roster.hosts(); ++h) text += (h == 0 ? "" : ", ") + roster.host_text(h);
  return text;
}

// Opens the transport for large payloads between hosts, or the reason why there is none.
void open_transport(const OpenTransports::Open& open, JobFacts& facts) {
  try {
    if (open) facts.between_hosts = open();
    if (!facts.between_hosts) facts.why_none = "none was found";
  } catch (...) {
    facts.why_none = current_error().message();
  }
}

}  // namespace

std::unique_ptr<Control> join(const JoinOptions& join, const OpenTransports::Open& open_between_hosts) {
  if (join.rendezvous.empty() || join.world_size == 1) return shm::join(join);
  const int64_t deadline = os::now_ns() + static_cast<int64_t>(join.join_timeout_s * 1e9);
  const int64_t silence_ns = host_timeout_ns();
  std::optional<Listener> listener;
  if (join.rank == 0) listener = Listener::at_any_port();
  const MeetingPlace place =
      join.meets_by_id ? MeetingPlace{.text = join.rendezvous, .host = {}, .port = {}, .kind = MeetingPlace::Kind::id}
                       : parse_meeting_place(join.rendezvous, join.rendezvous_source, join.is_launchers_place);
  auto [table, secret] = meet({join.rank, join.world_size, place, secret_of(join, place), job_of(join),
                               join.join_timeout_s, deadline, listener ? listener->port() : uint16_t{0}, host_fanout(),
                               silence_ns, join.job, join.order, join.accelerator});
  const auto left_s = [deadline] {
    return std::max(static_cast<double>(deadline - os::now_ns()) * 1e-9, kLeastLocalSeconds);
  };
  const Roster roster(table, join.rank);
  JoinOptions here = join;
  here.id = table.job;
  here.id.bytes[0] ^= static_cast<uint8_t>(roster.own_host());  // with GSEL_HOST_ID, one host may count as several
  here.join_timeout_s = left_s();
  if (roster.hosts() == 1) {
    log(GSEL_LOG_INFO, "comm", "rank {} of {} met the others at {}: all are on {}", join.rank, join.world_size,
        place.text, table.names.front());
    return shm::join(here);
  }
  if ((join.flags & GSEL_COMM_NO_THREAD) != 0)
    fail(GSEL_ERR_UNSUPPORTED,
         "GSEL_COMM_NO_THREAD, and ranks on {}: {}; a thread is needed to receive failures from other hosts",
         with_noun(roster.hosts(), "host"), hosts_text(roster));
  here.rank = roster.local_rank();
  here.world_size = static_cast<int32_t>(roster.here().size());
  here.shown_ranks = roster.here();
  here.threads_per_rank = 2;  // a transport has a thread of its own
  here.known_ranks = join.world_size;
  JobFacts facts{secret, table.silence_ns, join.order, nullptr, {}, join.accelerator};
  open_transport(open_between_hosts, facts);
  log(GSEL_LOG_INFO, "comm", "rank {} of {} met the others at {}: {}", join.rank, join.world_size, place.text,
      hosts_text(roster));
  std::unique_ptr<shm::Endpoint> local;
  try {
    local = shm::join(here);
  } catch (...) {
    const Error error = current_error();
    report_failure({facts.secret, table.job, roster.tree(), table.names, table.addresses, table.port, kReportSeconds,
                    os::now_ns() + static_cast<int64_t>(kReportSeconds * 1e9)},
                   roster.own_host(), listener, error);
    throw;
  }
  return std::make_unique<HostsControl>(HostsControl::Place{std::make_shared<const JobFacts>(std::move(facts)),
                                                            std::move(table), join.rank, std::move(local),
                                                            std::move(listener), join.timeout_s, left_s()});
}

}  // namespace gsel::hosts
