// comm/hosts/shrinking.cc: see shrinking.h.
#include "comm/hosts/shrinking.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/os.h"

namespace gsel::hosts {
namespace {

// Keeps listeners open, so that a rank that asks later learns that it was left behind, and does not believe that all
// have ended.
void keep_open(std::shared_ptr<RecoveryListener> recovery) {
  static std::mutex mutex;
  static auto* const kept = new std::vector<std::shared_ptr<RecoveryListener>>;  // until the process ends
  const std::lock_guard lock(mutex);
  recovery->is_kept = true;
  if (std::ranges::find(*kept, recovery) == kept->end()) kept->push_back(std::move(recovery));
}

std::optional<Error> what_broke(const Control& control) {
  try {
    control.throw_break_reason();
    return {};
  } catch (...) {
    return current_error();
  }
}

// A rank has died or does not come: the others may begin another round.
bool is_about_others(const Error& error) {
  return error.code() == GSEL_ERR_PEER || error.code() == GSEL_ERR_TIMEOUT;
}

bool comes(const Members& members, int32_t rank) {
  return members.marks[static_cast<size_t>(rank)] == static_cast<char>(Mark::comes);
}

// Rotates the hosts so that the one that listens for the others is first.
void begin_with(HostTable& table, int32_t host) {
  const auto hosts = static_cast<int32_t>(table.names.size());
  std::rotate(table.names.begin(), table.names.begin() + host, table.names.end());
  std::rotate(table.addresses.begin(), table.addresses.begin() + host, table.addresses.end());
  for (int32_t& of : table.host_of) of = (of + hosts - host) % hosts;
}

}  // namespace

Shrinking::Shrinking(std::shared_ptr<const Origin> from, int64_t begun_ns, const std::vector<int32_t>& left_out)
    : from_(std::move(from)), end_ns_(begun_ns + static_cast<int64_t>(from_->timeout_s * 1e9)), left_out_(left_out) {}

std::unique_ptr<Control> Shrinking::run(std::unique_ptr<shm::Endpoint> local) {
  for (;;) {
    std::optional<Agreement> agreement;
    Decision decision;
    try {
      meet_here(*local);
      agreement.emplace(hosts_agreement());
      decision = decide_here(*agreement, *local);
    } catch (const Error& error) {
      if (!is_about_others(error) || !local->is_broken() || os::now_ns() >= end_ns_) throw;
      local = local->shrink_here({});
      continue;
    }
    if (decision.code != GSEL_OK) fail_as(decision, HostRequest::Aim::shrink, from_->roster);
    learn({decision.made, agreement->marks});
    if (decision.made.others_may_live != 0) keep_open(from_->series.recovery);
    if (decision.is_old != 0 || !is_whole_here()) continue;  // that communicator was made before and is broken
    auto made = make(*agreement, std::move(local));
    const auto failure = made->is_over_hosts() ? what_broke(*made) : std::nullopt;
    if (!failure) agreement->finish();
    if (!failure || os::now_ns() >= end_ns_) return made;  // a broken communicator can be shrunk again
    if (!is_about_others(*failure)) throw *failure;
    agreement.reset();
    local = static_cast<HostsControl&>(*made).shrink_here({});
  }
}

// Exchanges the newest generations that the ranks of this host know; all continue from the newest.
void Shrinking::meet_here(shm::Endpoint& local) {
  RecoveryListener& recovery = *from_->series.recovery;
  {
    const std::lock_guard lock(recovery.mutex);
    newest_ = recovery.newest;
  }
  struct Said {
    int32_t rank;
    uint32_t reserved;
    Generation generation;
  };
  const size_t n = newest_.marks.size(), each = sizeof(Said) + n;
  std::vector<char> own(each), all(each * static_cast<size_t>(local.world_size()));
  const Said said{from_->roster.rank(), 0, newest_.generation};
  std::memcpy(own.data(), &said, sizeof said);
  std::memcpy(own.data() + sizeof said, newest_.marks.data(), n);
  local.exchange(own.data(), all.data(), each, "shrink", from_->timeout_s);
  here_.clear();
  for (const char* at = all.data(); at != all.data() + all.size(); at += each) {
    Said theirs;
    std::memcpy(&theirs, at, sizeof theirs);
    here_.push_back(theirs.rank);
    if (theirs.generation.number > newest_.generation.number)
      learn({theirs.generation, {at + sizeof theirs, at + each}});
  }
}

void Shrinking::learn(const Members& members) {
  newest_ = members;
  RecoveryListener& recovery = *from_->series.recovery;
  const std::lock_guard lock(recovery.mutex);
  recovery.newest = members;
  const int32_t own = from_->roster.rank();
  if (!comes(members, own))
    throw Error(GSEL_ERR_PEER, fmt::format("{} was left behind by a shrink of the others, which got no answer in time; "
                                           "join again",
                                           from_->roster.named(own)))
        .about_rank(from_->roster.shown(own));
}

Agreement Shrinking::hosts_agreement() const {
  std::vector<Participant> participants;
  for (size_t h = 0; h < from_->roster.hosts(); ++h) {
    Participant participant;
    for (const int32_t q : from_->roster.on(h))
      if (comes(newest_, q)) participant.push_back(q);
    if (!participant.empty()) participants.push_back(std::move(participant));
  }
  Agreement agreement = agreement_of(*from_, HostRequest::Aim::shrink, std::move(participants));
  agreement.request.generation = newest_.generation.number;
  for (const int32_t q : left_out_) agreement.marks[static_cast<size_t>(q)] = static_cast<char>(Mark::left_out);
  for (const int32_t q : here_) agreement.marks[static_cast<size_t>(q)] = static_cast<char>(Mark::comes);
  return agreement;
}

// Whether all ranks of this host in the newest generation take part.
bool Shrinking::is_whole_here() const {
  const auto& on_host = from_->roster.here();
  const auto n = std::ranges::count_if(on_host, [&](int32_t q) { return comes(newest_, q); });
  return static_cast<size_t>(n) == here_.size();
}

std::unique_ptr<Control> Shrinking::make(Agreement& agreement, std::unique_ptr<shm::Endpoint> local) {
  const Roster& roster = from_->roster;
  std::vector<int32_t> members, shown;
  for (int32_t q = 0; q < static_cast<int32_t>(roster.ranks()); ++q) {
    if (!comes(newest_, q)) continue;
    if (roster.is_here(q)) shown.push_back(static_cast<int32_t>(members.size()));
    members.push_back(q);
  }
  local->show_as(shown);
  HostTable table = table_of(roster, members);
  ShrinkSeries series{from_->series.recovery, from_->series.first, members, newest_.generation.number};
  if (table.names.size() == 1) {
    HostTable first = *series.first;
    first.shown_ranks.assign(first.host_of.size(), -1);
    for (size_t q = 0; q < members.size(); ++q)
      first.shown_ranks[static_cast<size_t>(members[q])] = static_cast<int32_t>(q);
    const auto next =
        std::make_shared<const Origin>(Origin{from_->facts, std::move(series), Roster(std::move(first), roster.rank()),
                                              from_->timeout_s, from_->join_timeout_s});
    local->finish_shrink_with([next](auto left) { return Shrinking(next, os::now_ns(), {}).run(std::move(left)); });
    return local;
  }
  const auto is_with_coordinator = [&](int32_t q) {
    return roster.host_of(q) == roster.host_of(newest_.generation.coordinator);
  };
  const auto with_coordinator = std::ranges::find_if(members, is_with_coordinator) - members.begin();
  begin_with(table, table.host_of[static_cast<size_t>(with_coordinator)]);
  table.job = newest_.generation.job;
  table.port = newest_.generation.port;
  const auto number = static_cast<int32_t>(std::ranges::find(members, roster.rank()) - members.begin());
  return std::make_unique<HostsControl>(
      HostsControl::Place{from_->facts, std::move(table), number, std::move(local), std::move(agreement.listener),
                          from_->timeout_s, std::min(from_->join_timeout_s, from_->timeout_s),
                          [&agreement] { return agreement.is_given_up(); }, std::move(series)});
}

}  // namespace gsel::hosts
