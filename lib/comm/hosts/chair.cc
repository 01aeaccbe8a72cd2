// comm/hosts/chair.cc: see chair.h.
#include "comm/hosts/chair.h"

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

Chair::Chair(Council& council, std::vector<ConnectAttempts> before)
    : at_(council), attempts_(std::move(before)), visitors_(council.parties.size()), marks_(council.marks) {
  attempts_.emplace_back();  // this host's party
  for (size_t i = council.own + 1; i < council.parties.size(); ++i)
    attempts_.push_back(connect_to_door(council, council.parties[i]));
}

Decision Chair::run() {
  while (!decided_ && !has_all_petitions() && !shrinks() && os::now_ns() < at_.deadline_ns) poll_once();
  const Decision decision = decided_ ? made_decision(*decided_) : decide();
  if (decided_) marks_ = decided_->marks;
  send_decision(decision);
  at_.marks = marks_;
  return decision;
}

size_t Chair::party_of(int32_t rank) const {
  for (size_t i = 0; i < at_.parties.size(); ++i)
    if (std::ranges::find(at_.parties[i], rank) != at_.parties[i].end()) return i;
  return at_.parties.size();
}

// ---- hearing parties ------------------------------------------------------------------------------------------------

bool Chair::has_all_petitions() {
  for (size_t i = at_.own + 1; i < at_.parties.size(); ++i)
    if (!is_settled(i)) return false;
  return true;
}

bool Chair::is_settled(size_t party) {
  if (visitors_[party]) return true;
  const auto waits_for = [&](const ConnectAttempt& attempt) {
    return !is(marks_[static_cast<size_t>(attempt.rank())], Mark::left_out) &&
           (attempt.state() == ConnectAttempt::State::trying || attempt.state() == ConnectAttempt::State::open);
  };
  return std::ranges::none_of(attempts_[party], waits_for);
}

void Chair::poll_once() {
  std::vector<pollfd> items;
  {
    const std::lock_guard lock(at_.doors.guest_mutex);
    for (const os::Fd& fd : at_.doors.own.fds()) items.push_back({fd.get(), POLLIN, 0});
    for (const Visitor& guest : at_.doors.guests)
      if (!guest.petition) items.push_back({guest.stream.fd(), POLLIN, 0});
  }
  for (size_t i = at_.own + 1; i < attempts_.size(); ++i)
    for (ConnectAttempt& attempt : attempts_[i])
      if (attempt.has_descriptor()) items.push_back({attempt.stream().fd(), attempt.events(), 0});
  poll(items.data(), items.size(), kPollMs);
  hear_guests();
  for (size_t i = at_.own + 1; i < attempts_.size(); ++i)
    for (ConnectAttempt& attempt : attempts_[i]) {
      attempt.progress(at_.silence_ns);
      if (attempt.state() == ConnectAttempt::State::open && !attempt.stream().fill(sizeof(Challenge) + 1))
        attempt.begin_again();  // reads past a challenge, to notice the end of the connection
    }
}

void Chair::hear_guests() {
  const std::lock_guard lock(at_.doors.guest_mutex);
  at_.doors.accept_guests();
  for (Visitor& guest : at_.doors.guests) at_.doors.read_petition(guest, at_.secret);
  std::erase_if(at_.doors.guests, [](const Visitor& guest) { return guest.is_over; });
  take_petitions();
}

// Petitions of another call wait until this host makes that call. For shrinks, one side may know an earlier decision
// that the other does not.
void Chair::take_petitions() {
  const uint32_t generation = at_.petition.generation;
  bool changed = false;
  for (Visitor& guest : at_.doors.guests) {
    if (guest.petition && guest.petition->aim == Petition::Aim::resync && at_.petition.aim == Petition::Aim::shrink) {
      answer(guest, failed_as_shrunk(at_.petition.rank), marks_);
      guest.is_over = true;
    }
    if (!guest.petition || guest.petition->aim != at_.petition.aim) continue;
    const uint32_t theirs = guest.petition->generation;
    if (at_.petition.aim == Petition::Aim::shrink && theirs < generation) {
      answer(guest, made_decision(at_.doors.newest), at_.doors.newest.marks);
      guest.is_over = true;
    } else if (at_.petition.aim == Petition::Aim::shrink && theirs > generation &&
               (!decided_ || decided_->generation.number < theirs)) {
      decided_ = guest.newest;
    }
    if (theirs != generation) continue;
    const size_t party = party_of(guest.petition->rank);
    if (party >= at_.parties.size() || visitors_[party]) continue;
    visitors_[party] = std::move(guest);
    guest.is_over = true;
    changed = true;
  }
  std::erase_if(at_.doors.guests, [](const Visitor& guest) { return guest.is_over; });
  for (auto& guest : visitors_)
    if (guest && !guest->stream.fill(1)) {  // it has ended meanwhile
      guest.reset();
      changed = true;
    }
  if (changed) gather_marks();
}

// `comes` overrides `left_out`.
void Chair::gather_marks() {
  marks_ = at_.marks;
  for (const auto& guest : visitors_)
    for (size_t q = 0; guest && q < marks_.size(); ++q)
      if (!is(guest->marks[q], Mark::none) && !is(marks_[q], Mark::comes)) marks_[q] = guest->marks[q];
}

// ---- deciding -------------------------------------------------------------------------------------------------------

std::vector<int32_t> Chair::silent() const {
  std::vector<int32_t> ranks;
  for (size_t i = 0; i < attempts_.size(); ++i)
    for (const ConnectAttempt& attempt : attempts_[i])
      if (i != at_.own && !visitors_[i] && may_live(attempt)) ranks.push_back(attempt.rank());
  std::ranges::sort(ranks);
  return ranks;
}

// In a resync: a rank that shrinks instead.
std::optional<int32_t> Chair::shrinks() const {
  if (at_.petition.aim != Petition::Aim::resync) return {};
  const std::lock_guard lock(at_.doors.guest_mutex);
  for (const Visitor& guest : at_.doors.guests)
    if (guest.petition && guest.petition->aim == Petition::Aim::shrink) return guest.petition->rank;
  return {};
}

Decision Chair::failed_as_shrunk(int32_t by) const {
  return failed_decision(
      GSEL_ERR_STATE, by,
      fmt::format("{} shrinks the communicator; call gsel_comm_shrink here too", at_.roster.named(by)));
}

Decision Chair::decide() {
  const Roster& roster = at_.roster;
  if (const auto by = shrinks()) return failed_as_shrunk(*by);
  if (at_.petition.odd >= 0) return failed_decision(GSEL_ERR_MISMATCH, at_.petition.odd, {});
  for (const auto& guest : visitors_) {
    if (!guest) continue;
    if (guest->petition->odd >= 0) return failed_decision(GSEL_ERR_MISMATCH, guest->petition->odd, {});
    if (guest->petition->agreed != at_.petition.agreed)
      return failed_decision(GSEL_ERR_MISMATCH, guest->petition->rank, {});
  }
  if (auto clash = find_conflict()) return *clash;
  const std::vector<int32_t> others = silent();
  if (at_.petition.aim != Petition::Aim::shrink) {
    for (size_t i = at_.own + 1; i < at_.parties.size(); ++i) {
      if (visitors_[i]) continue;
      const int32_t first = at_.parties[i].front();
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
                           fmt::format("gsel_comm_shrink: {} here, a minority: {} cannot be heard and may go on "
                                       "without this host; join again",
                                       shown_text(come), shown_text(others)));
  Decision decision = create_job();
  decision.made.others_may_live = !others.empty();
  return decision;
}

// An error if one host leaves out a rank that comes.
std::optional<Decision> Chair::find_conflict() const {
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
  auto clash = conflict_of(at_.petition.rank, at_.marks);
  for (size_t i = 0; i < visitors_.size() && !clash; ++i)
    if (visitors_[i]) clash = conflict_of(visitors_[i]->petition->rank, visitors_[i]->marks);
  return clash;
}

Decision Chair::create_job() {
  Decision decision;
  try {
    at_.listener = Listener::at_any_port();
    decision.made.number = at_.petition.generation + 1;
    decision.made.chair = at_.petition.rank;
    decision.made.port = at_.listener->port();
    os::random_bytes(decision.made.job.bytes, sizeof decision.made.job.bytes);
  } catch (...) {
    const Error error = current_error();
    return failed_decision(error.code(), at_.petition.rank, error.message());
  }
  return decision;
}

void Chair::send_decision(const Decision& decision) {
  for (auto& guest : visitors_)
    if (guest && answer(*guest, decision, marks_)) at_.ties.push_back(std::move(guest->stream));
}

// false: the guest has ended.
bool Chair::answer(Visitor& guest, const Decision& decision, const std::vector<char>& marks) {
  const int64_t deadline = os::now_ns() + kTellNs;
  const Bytes32 signature = sign_decision(at_, guest.petition->nonce, decision, marks);
  return guest.stream.send(decision, deadline) && guest.stream.send(signature, deadline) &&
         guest.stream.send(marks.data(), marks.size(), deadline);
}

std::string Chair::shown_text(std::vector<int32_t> ranks) const {
  for (int32_t& q : ranks) q = at_.roster.shown(q);
  return ranks_text(ranks);
}

}  // namespace gsel::hosts
