// comm/hosts/refusals.cc: see refusals.h.
#include "comm/hosts/refusals.h"

#include <algorithm>

#include "base/text.h"

namespace gsel::hosts {

std::string seat_of(const Greeting& greeting) {
  return fmt::format("{} (pid {})", read_text(greeting.host), greeting.pid);
}

void fail_kind(const Greeting& g) {
  const bool is_swapped = g.magic == __builtin_bswap64(kMagic);
  const auto number = [is_swapped](int32_t n) {
    return is_swapped ? static_cast<int32_t>(__builtin_bswap32(static_cast<uint32_t>(n))) : n;
  };
  const std::string who = fmt::format("rank {} on {} (pid {})", number(g.rank), read_text(g.host), number(g.pid));
  throw Error(GSEL_ERR_VERSION,
              is_swapped ? who + " has another byte order than rank 0; use hosts of one kind"
                         : fmt::format("{} meets by protocol {}, rank 0 by {}; all ranks must use one libgsel", who,
                                       g.protocol, kMeetingProtocol))
      .about_rank(number(g.rank));
}

void check_greeting(const Greeting& g, const Greeting& root, const Greeting* other, const Greeting* same_host) {
  const int32_t world_size = root.world_size;
  if (read_text(g.version) != version_text())
    throw Error(GSEL_ERR_VERSION,
                fmt::format("rank {} on {} has gsel {}, rank 0 gsel {}; all ranks must use one libgsel", g.rank,
                            seat_of(g), read_text(g.version), version_text()))
        .about_rank(g.rank);
  if (g.world_size != world_size)
    throw Error(GSEL_ERR_MISMATCH,
                fmt::format("rank {} on {} joins a world of {}, rank 0 one of {}; give every rank the same world_size",
                            g.rank, seat_of(g), with_noun(g.world_size, "rank"), world_size))
        .about_rank(g.rank);
  if (g.rank < 0 || g.rank >= world_size)
    throw Error(GSEL_ERR_MISMATCH, fmt::format("a process on {} is rank {} of {}; ranks are 0 to {}", seat_of(g),
                                               g.rank, world_size, world_size - 1))
        .about_rank(-1);
  const auto refuse_option = [&g](const std::string& theirs, const std::string& ours, const char* field) {
    throw Error(GSEL_ERR_MISMATCH, fmt::format("rank {} on {} joins {}, rank 0 {}; give every rank the same "
                                               "gsel_comm_options.{}",
                                               g.rank, seat_of(g), theirs, ours, field))
        .about_rank(g.rank);
  };
  if (g.order != root.order)
    refuse_option(fmt::format("with order {}", g.order), fmt::format("with {}", root.order), "order");
  const auto accelerator = [](const Greeting& of) {
    return of.accelerator ? "with an accelerator" : "without an accelerator";
  };
  if (g.accelerator != root.accelerator) refuse_option(accelerator(g), accelerator(root), "accelerator");
  if (other)
    throw Error(GSEL_ERR_MISMATCH,
                fmt::format("rank {} is given twice: to a process on {} and to one on {}; give every process a rank of "
                            "its own",
                            g.rank, seat_of(*other), seat_of(g)))
        .about_rank(g.rank);
  if (same_host && same_host->space != g.space)
    throw Error(
        GSEL_ERR_MISMATCH,
        fmt::format("rank {} on {} and rank {} on {} say by GSEL_HOST_ID that they are on one host, and share no "
                    "abstract sockets: they have other network namespaces, or kernels; unset GSEL_HOST_ID, or "
                    "give each its own",
                    same_host->rank, seat_of(*same_host), g.rank, seat_of(g)))
        .about_rank(g.rank);
}

Error other_job(const Greeting& g, const Greeting& root, const std::string& place) {
  const auto job = [](const Greeting& of) {
    const std::string name = read_text(of.job);
    return name.empty() ? std::string("a job without a name") : fmt::format("job {}", in_quotes(name));
  };
  return Error(GSEL_ERR_MISMATCH,
               fmt::format("rank {} on {} is of {}, and rank 0 on {}, which waits at {}, of {}; give each job another "
                           "place, or all ranks of one job the same GSEL_JOB_NAME",
                           g.rank, seat_of(g), job(g), seat_of(root), place, job(root)))
      .about_rank(g.rank);
}

Error second_rank_0(const Greeting& g, const Greeting& root) {
  return Error(GSEL_ERR_MISMATCH,
               fmt::format("rank 0 is given twice: to a process on {} and to one on {}", seat_of(root), seat_of(g)))
      .about_rank(0);
}

void fail_late(const Meeting& meeting, const std::vector<int32_t>& late, bool have_come,
               const std::vector<const Greeting*>& here, const std::string& refused, const Waiter* waiter) {
  const std::string seconds = seconds_text(waiter ? waiter->seconds : meeting.seconds),
                    own = seconds_text(meeting.seconds);
  std::string text = fmt::format("timed out: {} {} {} within {}", ranks_text(late),
                                 have_come          ? "did not take the table of the hosts that met at"
                                 : late.size() == 1 ? "has not come to"
                                                    : "have not come to",
                                 meeting.place.text, seconds);
  if (waiter) {
    const std::string who = fmt::format("rank {} on {}", waiter->greeting.rank, seat_of(waiter->greeting));
    text += seconds == own ? fmt::format(" from when {} began to wait", who)
                           : fmt::format(", the join timeout of {}, and rank 0 has {}", who, own);
  }
  std::vector<std::string> names;
  std::vector<std::vector<int32_t>> there;
  for (size_t rank = 0; rank < here.size(); ++rank) {
    if (!here[rank]) continue;
    const std::string name = read_text(here[rank]->host);
    const auto host = static_cast<size_t>(std::ranges::find(names, name) - names.begin());
    if (host == names.size()) names.push_back(name), there.emplace_back();
    there[host].push_back(static_cast<int32_t>(rank));
  }
  for (size_t h = 0; h < names.size(); ++h)
    text += fmt::format("{} {} on {}", h == 0 ? "; here are" : ",", ranks_text(there[h]), names[h]);
  if (!refused.empty()) text += "; " + refused;
  throw Error(GSEL_ERR_TIMEOUT, text).about_rank(late.front());
}

bool Refused::add_other_token(const std::string& address) {
  if (std::ranges::find(addresses_, address) != addresses_.end()) return false;
  const bool is_new = addresses_.size() < kMostAddresses;
  if (is_new)
    addresses_.push_back(address);
  else
    has_more_ = true;
  return is_new;
}

bool Refused::add_rank_0(const std::string& seat) {
  return std::exchange(rank_0_, seat) != seat;
}

std::string Refused::text() const {
  std::string text;
  for (size_t i = 0; i < addresses_.size(); ++i)
    text += (i == 0 ? "" : i + 1 == addresses_.size() && !has_more_ ? " and " : ", ") + addresses_[i];
  if (!text.empty())
    text = fmt::format("{} at {}{} showed another token", addresses_.size() == 1 ? "a process" : "processes", text,
                       has_more_ ? " and others" : "");
  if (!rank_0_.empty())
    text += fmt::format("{}a second rank 0 on {} was turned away", text.empty() ? "" : "; ", rank_0_);
  if (!other_job_.empty()) text += (text.empty() ? "turned away: " : "; turned away: ") + other_job_;
  return text;
}

}  // namespace gsel::hosts
