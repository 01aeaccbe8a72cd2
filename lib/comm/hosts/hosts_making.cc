// comm/hosts/hosts_making.cc: makes communicators from a broken one over several hosts, and repairs a broken one, by a
// agreement of its hosts (agreement.h). See hosts_control.cc for communicators made from a working one.
#include <sys/eventfd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/os.h"
#include "base/text.h"
#include "comm/hosts/hosts_control.h"
#include "comm/hosts/shrinking.h"
#include "comm/hosts/wire.h"

namespace gsel::hosts {

namespace {

constexpr int64_t kDyingNs = 20'000'000;      // time for a death to be noticed
constexpr int64_t kForHostsNs = 500'000'000;  // additional wait of an agreement compared to the ranks of a host
constexpr double kForAgreementS = 2;

const char* name_of(HostRequest::Aim aim) {
  switch (aim) {
    case HostRequest::Aim::shrink:
      return "gsel_comm_shrink";
    case HostRequest::Aim::resync:
      return "gsel_comm_resync";
    case HostRequest::Aim::group:
      return "gsel_comm_create_group";
    case HostRequest::Aim::inquire:  // has no agreement
      break;
  }
  return "";
}

std::unique_ptr<shm::Endpoint> as_endpoint(std::unique_ptr<Control> control) {
  return std::unique_ptr<shm::Endpoint>(static_cast<shm::Endpoint*>(control.release()));  // made by an Endpoint
}

}  // namespace

void fail_as(const Decision& decision, HostRequest::Aim aim, const Roster& roster) {
  const int32_t about = decision.about;
  std::string text = read_text(decision.text);
  if (aim == HostRequest::Aim::group && decision.code == GSEL_ERR_MISMATCH)
    text = fmt::format("gsel_comm_create_group: {} gives another list of ranks; give the same on each",
                       roster.named(about));
  else if (aim != HostRequest::Aim::shrink)
    text = fmt::format("{}: {}", name_of(aim), text);
  throw Error(decision.code, text).about_rank(about < 0 ? -1 : roster.shown(about));
}

std::shared_ptr<const Origin> HostsControl::origin() const {
  HostTable table = *series_.first;
  table.shown_ranks.assign(table.host_of.size(), -1);
  for (size_t q = 0; q < series_.ranks.size(); ++q)
    table.shown_ranks[static_cast<size_t>(series_.ranks[q])] = roster_.shown(static_cast<int32_t>(q));
  const int32_t own = series_.ranks[static_cast<size_t>(rank())];
  return std::make_shared<const Origin>(
      Origin{facts_, series_, Roster(std::move(table), own), timeout_s_, join_timeout_s_});
}

Agreement agreement_of(const Origin& from, HostRequest::Aim aim, std::vector<Participant> participants) {
  const auto is_own = [&](const Participant& participant) { return from.roster.is_here(participant.front()); };
  const auto own = static_cast<size_t>(std::ranges::find_if(participants, is_own) - participants.begin());
  HostRequest request;
  request.rank = from.roster.rank();
  request.aim = aim;
  request.generation = from.series.generation;
  return {from.roster,
          *from.series.recovery,
          from.facts->secret,
          std::move(participants),
          own,
          request,
          std::vector<char>(from.roster.ranks()),
          from.facts->silence_ns,
          os::now_ns() + static_cast<int64_t>(from.timeout_s * 1e9) + kForHostsNs};
}

Decision decide_here(Agreement& agreement, shm::Endpoint& here) {
  const size_t n = agreement.roster.ranks();
  std::vector<char> own(sizeof(Decision) + n), all(own.size() * static_cast<size_t>(here.world_size()));
  if (here.rank() == 0) {
    Decision decision;
    try {
      decision = agreement.reach();
    } catch (...) {
      const Error error = current_error();
      decision.code = error.code();
      decision.about = agreement.request.rank;
      write_text(decision.text, error.message());
    }
    std::memcpy(own.data(), &decision, sizeof decision);
    std::memcpy(own.data() + sizeof decision, agreement.marks.data(), n);
  }
  const double left_s = static_cast<double>(agreement.last_ns() - os::now_ns()) * 1e-9;
  here.exchange(own.data(), all.data(), own.size(), name_of(agreement.request.aim),
                std::max(left_s, 0.0) + kForAgreementS);
  Decision decision;
  std::memcpy(&decision, all.data(), sizeof decision);
  agreement.marks.assign(all.begin() + sizeof decision, all.begin() + static_cast<std::ptrdiff_t>(sizeof decision + n));
  return decision;
}

// Breaks the communicator, which ends all calls. Usually a rank has just died: waits kDyingNs for that error, which
// names the rank.
void HostsControl::end_calls(const char* purpose) {
  const int64_t end = os::now_ns() + kDyingNs;
  while (!is_broken() && os::now_ns() < end) local_->await_break(end - os::now_ns());
  if (!is_broken())
    local_->break_with(Error(GSEL_ERR_STATE, fmt::format("{} asked for a {}; call gsel_comm_{} on every rank",
                                                         roster_.named(rank()), purpose, purpose))
                           .about_rank(roster_.shown(rank())));
}

std::unique_ptr<shm::Endpoint> HostsControl::shrink_here(std::span<const int32_t> without) {
  is_shrunk_ = true;
  std::unique_ptr<shm::Endpoint> left;
  serial_->run([&] { left = local_->shrink_here(without); });
  return left;
}

std::unique_ptr<Control> HostsControl::make_shrunk(const std::vector<int32_t>& without) {
  if (is_shrunk_.exchange(true))
    fail(GSEL_ERR_STATE, "gsel_comm_shrink: this communicator has been shrunk already; use the new communicator");
  const int64_t begun = os::now_ns();
  end_calls("shrink");
  std::vector<int32_t> without_here, left_out;
  for (const int32_t q : without) {
    left_out.push_back(series_.ranks[static_cast<size_t>(q)]);
    if (roster_.is_here(q)) without_here.push_back(roster_.local_of(q));
  }
  return Shrinking(origin(), begun, left_out).run(shrink_here(without_here));
}

std::unique_ptr<Control> HostsControl::make_group(const std::vector<int32_t>& ranks) {
  std::vector<int32_t> here, shown;
  std::vector<Participant> participants;
  uint64_t list = ranks.size();
  for (const int32_t q : ranks) {
    list = (list ^ static_cast<uint64_t>(q)) * 0x100000001b3u;
    const auto number = static_cast<int32_t>(&q - ranks.data());
    if (roster_.is_here(q)) here.push_back(roster_.local_of(q)), shown.push_back(number);
    const int32_t first = series_.ranks[static_cast<size_t>(q)];
    const auto is_there = [&](const Participant& participant) {
      const auto& host_of = series_.first->host_of;
      return host_of[static_cast<size_t>(participant.front())] == host_of[static_cast<size_t>(first)];
    };
    if (std::ranges::none_of(participants, is_there)) participants.push_back({first});
  }
  auto local = as_endpoint(local_->create_group(here));
  struct Given {
    uint64_t list;
    int32_t rank;
    int32_t reserved;
  };
  const auto from = origin();
  const Given own{list, from->roster.rank(), 0};
  std::vector<Given> given(here.size());
  local->exchange(&own, given.data(), sizeof own, "create_group", timeout_s_);
  Agreement agreement = agreement_of(*from, HostRequest::Aim::group, std::move(participants));
  agreement.request.agreed = list;
  for (const Given& one : given)
    if (one.list != given[0].list) agreement.request.odd = one.rank;
  const Decision decision = decide_here(agreement, *local);
  if (decision.code != GSEL_OK) fail_as(decision, HostRequest::Aim::group, from->roster);
  local->show_as(shown);
  HostTable table = table_of(roster_, ranks);
  if (table.names.size() == 1) return local;
  table.job = decision.made.job;
  table.port = decision.made.port;
  const auto number = static_cast<int32_t>(std::ranges::find(ranks, rank()) - ranks.begin());
  auto made = std::make_unique<HostsControl>(
      Place{facts_, std::move(table), number, std::move(local), std::move(agreement.listener), timeout_s_,
            std::min(join_timeout_s_, timeout_s_), [&agreement] { return agreement.is_given_up(); }});
  agreement.finish();
  return made;
}

std::unique_ptr<Control> HostsControl::create_group(std::span<const int32_t> ranks) {
  require_own_process(fork_generation_, "gsel_comm_create_group");
  return make_group({ranks.begin(), ranks.end()});
}

std::unique_ptr<Control> HostsControl::shrink(std::span<const int32_t> without) {
  require_own_process(fork_generation_, "gsel_comm_shrink");
  return make_shrunk({without.begin(), without.end()});
}

// Makes lines and transport again, so that no bytes from before the failure arrive.
void HostsControl::resync() {
  require_own_process(fork_generation_, "gsel_comm_resync");
  if (is_shrunk_) fail(GSEL_ERR_STATE, "gsel_comm_resync: this communicator has been shrunk; use the new communicator");
  end_calls("resync");
  serial_->run([&] {
    backend_.take(nullptr);
    failure_notifier_.reset();
    lines_.clear();
    local_->resync();
  });
  try {
    const auto from = origin();
    std::vector<Participant> participants(roster_.hosts());
    for (size_t q = 0; q < roster_.ranks(); ++q)
      participants[roster_.host_of(static_cast<int32_t>(q))].push_back(series_.ranks[q]);
    Agreement agreement = agreement_of(*from, HostRequest::Aim::resync, std::move(participants));
    const Decision decision = decide_here(agreement, *local_);
    if (decision.code != GSEL_OK) fail_as(decision, HostRequest::Aim::resync, from->roster);
    eventfd_t broken = 0;
    eventfd_read(wake_.get(), &broken);
    connect({decision.made.job, decision.made.port}, agreement.listener,
            [&agreement] { return agreement.is_given_up(); });
    if (failure_notifier_) failure_notifier_->begin_inquiries(series_, facts_->secret);
    join_transport();
    agreement.finish();
  } catch (...) {
    local_->break_with(current_error());
    throw;
  }
}

std::unique_ptr<BackendRequest> HostsControl::create_in_background(std::function<void()> make) {
  local_->allow_overlap();
  std::erase_if(makers_, [](const auto& maker) { return maker->has_ended(); });
  makers_.push_back(std::make_shared<shm::Maker>(std::move(make)));
  return std::make_unique<shm::BackgroundCreation>(makers_.back());
}

std::unique_ptr<BackendRequest> HostsControl::start_making(const Making& making,
                                                           std::function<void(std::unique_ptr<Control>)> take) {
  require_own_process(fork_generation_, "request");
  if (making.kind == Making::Kind::group)
    return create_in_background([this, take = std::move(take), ranks = making.ranks] { take(make_group(ranks)); });
  if (making.kind == Making::Kind::shrink)
    return create_in_background([this, take = std::move(take), ranks = making.ranks] { take(make_shrunk(ranks)); });
  const bool dups = making.kind == Making::Kind::dup;
  return backend_.start_in_turn([this, take = std::move(take), colour = dups ? 0 : making.colour,
                                 key = dups ? rank() : making.key,
                                 what = dups ? "dup" : "split"] { take(split_in_turn(colour, key, {}, what)); });
}

}  // namespace gsel::hosts
