// comm/hosts/coordinator.cc: see coordinator.h.
#include "comm/hosts/coordinator.h"

#include <poll.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/os.h"
#include "comm/hosts/wire.h"

namespace gsel::hosts {
namespace {

constexpr int64_t kTellNs = 200'000'000;
constexpr int kPollMs = 20;

bool is(char mark, Mark what) {
  return mark == static_cast<char>(what);
}

Decision made_decision(const Members& made) {
  Decision decision;
  decision.made = made.generation;
  decision.is_old = 1;
  return decision;
}

}  // namespace

Coordinator::Coordinator(Agreement& agreement, std::vector<ConnectAttempts> before)
    : at_(agreement), attempts_(std::move(before)), accepted_(agreement.participants.size()), marks_(agreement.marks) {
  attempts_.emplace_back();  // this host's participant
  for (size_t i = agreement.own + 1; i < agreement.participants.size(); ++i)
    attempts_.push_back(connect_to_listener(agreement, agreement.participants[i]));
}

Decision Coordinator::run() {
  while (!decided_ && !has_all_requests() && !shrinks() && os::now_ns() < at_.deadline_ns) poll_once();
  const Decision decision = decided_ ? made_decision(*decided_) : decide();
  if (decided_) marks_ = decided_->marks;
  send_decision(decision);
  at_.marks = marks_;
  return decision;
}

size_t Coordinator::participant_of(int32_t rank) const {
  for (size_t i = 0; i < at_.participants.size(); ++i)
    if (std::ranges::find(at_.participants[i], rank) != at_.participants[i].end()) return i;
  return at_.participants.size();
}

// ---- requests of participants --------------------------------------------------------------------------------------

bool Coordinator::has_all_requests() {
  for (size_t i = at_.own + 1; i < at_.participants.size(); ++i)
    if (!is_settled(i)) return false;
  return true;
}

bool Coordinator::is_settled(size_t participant) {
  if (accepted_[participant]) return true;
  const auto waits_for = [&](const ConnectAttempt& attempt) {
    return !is(marks_[static_cast<size_t>(attempt.rank())], Mark::left_out) &&
           (attempt.state() == ConnectAttempt::State::trying || attempt.state() == ConnectAttempt::State::open);
  };
  return std::ranges::none_of(attempts_[participant], waits_for);
}

void Coordinator::poll_once() {
  std::vector<pollfd> items;
  {
    const std::lock_guard lock(at_.recovery.requests_mutex);
    for (const os::Fd& fd : at_.recovery.own.fds()) items.push_back({fd.get(), POLLIN, 0});
    for (const IncomingRequest& incoming : at_.recovery.requests)
      if (!incoming.request) items.push_back({incoming.stream.fd(), POLLIN, 0});
  }
  for (size_t i = at_.own + 1; i < attempts_.size(); ++i)
    for (ConnectAttempt& attempt : attempts_[i])
      if (attempt.has_descriptor()) items.push_back({attempt.stream().fd(), attempt.events(), 0});
  poll(items.data(), items.size(), kPollMs);
  read_requests();
  for (size_t i = at_.own + 1; i < attempts_.size(); ++i)
    for (ConnectAttempt& attempt : attempts_[i]) {
      attempt.progress(at_.silence_ns);
      if (attempt.state() == ConnectAttempt::State::open && !attempt.stream().fill(sizeof(Challenge) + 1))
        attempt.begin_again();  // reads past a challenge, to notice the end of the connection
    }
}

void Coordinator::read_requests() {
  const std::lock_guard lock(at_.recovery.requests_mutex);
  at_.recovery.accept_connections();
  for (IncomingRequest& incoming : at_.recovery.requests) at_.recovery.read_request(incoming, at_.secret);
  std::erase_if(at_.recovery.requests, [](const IncomingRequest& incoming) { return incoming.is_over; });
  take_requests();
}

// Requests of another call wait until this host makes that call. For shrinks, one side may know an earlier decision
// that the other does not.
void Coordinator::take_requests() {
  const uint32_t generation = at_.request.generation;
  bool changed = false;
  for (IncomingRequest& incoming : at_.recovery.requests) {
    if (incoming.request && incoming.request->aim == HostRequest::Aim::resync &&
        at_.request.aim == HostRequest::Aim::shrink) {
      answer(incoming, failed_as_shrunk(at_.request.rank), marks_);
      incoming.is_over = true;
    }
    if (!incoming.request || incoming.request->aim != at_.request.aim) continue;
    const uint32_t theirs = incoming.request->generation;
    if (at_.request.aim == HostRequest::Aim::shrink && theirs < generation) {
      answer(incoming, made_decision(at_.recovery.newest), at_.recovery.newest.marks);
      incoming.is_over = true;
    } else if (at_.request.aim == HostRequest::Aim::shrink && theirs > generation &&
               (!decided_ || decided_->generation.number < theirs)) {
      decided_ = incoming.newest;
    }
    if (theirs != generation) continue;
    const size_t participant = participant_of(incoming.request->rank);
    if (participant >= at_.participants.size() || accepted_[participant]) continue;
    accepted_[participant] = std::move(incoming);
    incoming.is_over = true;
    changed = true;
  }
  std::erase_if(at_.recovery.requests, [](const IncomingRequest& incoming) { return incoming.is_over; });
  for (auto& incoming : accepted_)
    if (incoming && !incoming->stream.fill(1)) {  // it has ended meanwhile
      incoming.reset();
      changed = true;
    }
  if (changed) gather_marks();
}

// `comes` overrides `left_out`.
void Coordinator::gather_marks() {
  marks_ = at_.marks;
  for (const auto& incoming : accepted_)
    for (size_t q = 0; incoming && q < marks_.size(); ++q)
      if (!is(incoming->marks[q], Mark::none) && !is(marks_[q], Mark::comes)) marks_[q] = incoming->marks[q];
}

// ---- deciding -------------------------------------------------------------------------------------------------------

std::vector<int32_t> Coordinator::silent() const {
  std::vector<int32_t> ranks;
  for (size_t i = 0; i < attempts_.size(); ++i)
    for (const ConnectAttempt& attempt : attempts_[i])
      if (i != at_.own && !accepted_[i] && may_live(attempt)) ranks.push_back(attempt.rank());
  std::ranges::sort(ranks);
  return ranks;
}

// In a resync: a rank that shrinks instead.
std::optional<int32_t> Coordinator::shrinks() const {
  if (at_.request.aim != HostRequest::Aim::resync) return {};
  const std::lock_guard lock(at_.recovery.requests_mutex);
  for (const IncomingRequest& incoming : at_.recovery.requests)
    if (incoming.request && incoming.request->aim == HostRequest::Aim::shrink) return incoming.request->rank;
  return {};
}

Decision Coordinator::failed_as_shrunk(int32_t by) const {
  return failed_decision(
      GSEL_ERR_STATE, by,
      fmt::format("{} shrinks the communicator; call gsel_comm_shrink here too", at_.roster.named(by)));
}

Decision Coordinator::decide() {
  const Roster& roster = at_.roster;
  if (const auto by = shrinks()) return failed_as_shrunk(*by);
  if (at_.request.odd >= 0) return failed_decision(GSEL_ERR_MISMATCH, at_.request.odd, {});
  for (const auto& incoming : accepted_) {
    if (!incoming) continue;
    if (incoming->request->odd >= 0) return failed_decision(GSEL_ERR_MISMATCH, incoming->request->odd, {});
    if (incoming->request->agreed != at_.request.agreed)
      return failed_decision(GSEL_ERR_MISMATCH, incoming->request->rank, {});
  }
  if (auto clash = find_conflict()) return *clash;
  const std::vector<int32_t> others = silent();
  if (at_.request.aim != HostRequest::Aim::shrink) {
    for (size_t i = at_.own + 1; i < at_.participants.size(); ++i) {
      if (accepted_[i]) continue;
      const int32_t first = at_.participants[i].front();
      const bool ended = std::ranges::none_of(attempts_[i], may_live);
      return failed_decision(
          ended ? GSEL_ERR_PEER : GSEL_ERR_TIMEOUT, first,
          fmt::format("{} {}", roster.named(first), ended ? "has ended or left" : "does not call it"));
    }
    return create_job();
  }
  std::vector<int32_t> come;
  for (size_t q = 0; q < marks_.size(); ++q)
    if (is(marks_[q], Mark::comes)) come.push_back(static_cast<int32_t>(q));
  if (others.size() > come.size() || (others.size() == come.size() && others.front() < come.front()))
    return failed_decision(GSEL_ERR_PEER, others.front(),
                           fmt::format("gsel_comm_shrink: {} here, a minority: {} do not answer and may go on "
                                       "without this host; join again",
                                       shown_text(come), shown_text(others)));
  Decision decision = create_job();
  decision.made.others_may_live = !others.empty();
  return decision;
}

// An error if one host leaves out a rank that comes.
std::optional<Decision> Coordinator::find_conflict() const {
  const auto conflict_of = [&](int32_t by, const std::vector<char>& marks) -> std::optional<Decision> {
    for (size_t q = 0; q < marks_.size(); ++q)
      if (is(marks[q], Mark::left_out) && is(marks_[q], Mark::comes))
        return failed_decision(
            GSEL_ERR_MISMATCH, static_cast<int32_t>(q),
            fmt::format("gsel_comm_shrink_without: {} leaves {} out, which shrinks the communicator itself; leave out "
                        "ranks that do not call",
                        at_.roster.named(by), at_.roster.named(static_cast<int32_t>(q))));
    return {};
  };
  auto clash = conflict_of(at_.request.rank, at_.marks);
  for (size_t i = 0; i < accepted_.size() && !clash; ++i)
    if (accepted_[i]) clash = conflict_of(accepted_[i]->request->rank, accepted_[i]->marks);
  return clash;
}

Decision Coordinator::create_job() {
  Decision decision;
  try {
    at_.listener = Listener::at_any_port();
    decision.made.number = at_.request.generation + 1;
    decision.made.coordinator = at_.request.rank;
    decision.made.port = at_.listener->port();
    os::random_bytes(decision.made.job.bytes, sizeof decision.made.job.bytes);
  } catch (...) {
    const Error error = current_error();
    return failed_decision(error.code(), at_.request.rank, error.message());
  }
  return decision;
}

void Coordinator::send_decision(const Decision& decision) {
  for (auto& incoming : accepted_)
    if (incoming && answer(*incoming, decision, marks_)) at_.connections.push_back(std::move(incoming->stream));
}

// false: the other side has ended.
bool Coordinator::answer(IncomingRequest& incoming, const Decision& decision, const std::vector<char>& marks) {
  const int64_t deadline = os::now_ns() + kTellNs;
  const Bytes32 signature = sign_decision(at_, incoming.request->nonce, decision, marks);
  return incoming.stream.send(decision, deadline) && incoming.stream.send(signature, deadline) &&
         incoming.stream.send(marks.data(), marks.size(), deadline);
}

std::string Coordinator::shown_text(std::vector<int32_t> ranks) const {
  for (int32_t& q : ranks) q = at_.roster.shown(q);
  return ranks_text(ranks);
}

}  // namespace gsel::hosts
