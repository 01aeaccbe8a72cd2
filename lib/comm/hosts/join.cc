// comm/hosts/join.cc: see join.h.
#include "comm/hosts/join.h"

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "base/log.h"
#include "base/text.h"
#include "comm/hosts/meeting.h"
#include "comm/shm/endpoint.h"

namespace gsel::hosts {
namespace {

constexpr double kLeastLocalSeconds = 1;  // for the ranks of one host that have all met already

// The id that the caller gave to every rank, which nobody else knows; else the file that GSEL_TOKEN_FILE names.
Secret secret_of(const JoinOptions& join) {
  if (join.id_is_given) return Secret({std::begin(join.id.bytes), std::end(join.id.bytes)});
  const char* file = secure_getenv("GSEL_TOKEN_FILE");
  if (!file || !*file)
    fail(GSEL_ERR_CONFIG,
         "ranks are to meet at {} and have no token, without which anybody could join; name a file with mode 600 that "
         "has the same 16 to 4096 bytes on every host in GSEL_TOKEN_FILE, or give every rank the same id",
         view(join.rendezvous));
  return Secret::of_file(file);
}

std::string hosts_text(const HostTable& table) {
  std::string text;
  for (size_t h = 0; h < table.names.size(); ++h) {
    std::vector<int32_t> ranks;
    for (size_t q = 0; q < table.host_of.size(); ++q)
      if (table.host_of[q] == static_cast<int32_t>(h)) ranks.push_back(static_cast<int32_t>(q));
    text += fmt::format("{}{} on {}", h == 0 ? "" : ", ", ranks_text(ranks), table.names[h]);
  }
  return text;
}

}  // namespace

std::unique_ptr<Control> join(const JoinOptions& join) {
  if (!given(join.rendezvous) || join.world_size == 1) return shm::join(join);
  const int64_t deadline = os::now_ns() + static_cast<int64_t>(join.join_timeout_s * 1e9);
  const HostTable table =
      meet({join.rank, join.world_size, parse_meeting_place(view(join.rendezvous), join.rendezvous_source),
            secret_of(join), join.join_timeout_s, deadline});
  if (table.names.size() > 1)
    fail(GSEL_ERR_UNSUPPORTED, "the ranks have met on {}: {}; no transport between hosts can be had, start all on one",
         with_noun(table.names.size(), "host"), hosts_text(table));
  log(GSEL_LOG_INFO, "comm", "rank {} of {} met the others at {}: all are on {}", join.rank, join.world_size,
      view(join.rendezvous), table.names.front());
  JoinOptions here = join;
  here.id = table.job;
  here.join_timeout_s = std::max(static_cast<double>(deadline - os::now_ns()) * 1e-9, kLeastLocalSeconds);
  return shm::join(here);
}

}  // namespace gsel::hosts
