// comm/hosts/call_matcher.cc: see call_matcher.h.
#include "comm/hosts/call_matcher.h"

#include "base/types.h"
#include "comm/call/collective.h"

namespace gsel::hosts {

std::string text_of(const Roster& roster, const Announcement& call) {
  const Head& head = call.head;
  std::string text = describe(head.kind, head.dtype, head.op, head.root < 0 ? head.root : roster.shown(head.root),
                              head.count, head.operation, call.tag);
  if (head.label[0]) text += fmt::format(" \"{}\"", head.label);
  return text + (call.registered ? " on a stream in registered memory" : " on a stream");
}

std::string CallMatcher::text_of(const Announcement& call) const {
  return hosts::text_of(roster_, call);
}

std::optional<Error> CallMatcher::take(const Announcement& announcement, std::span<const uint64_t> counts,
                                       int64_t now_ns) {
  Rank& rank = ranks_[static_cast<size_t>(announcement.rank)];
  if (announcement.what == Announcement::What::leaves) {
    rank.has_left = true;
    return find_late(now_ns);
  }
  rank.last = announcement;
  if (is_point_to_point(announcement.head.kind)) return take_messages(announcement, counts);
  auto error = take_collective(announcement, now_ns);
  if (!error && announcement.counts > 0) error = take_messages(announcement, counts);
  return error;
}

// ---- collectives ----------------------------------------------------------------------------------------------------

std::optional<Error> CallMatcher::take_collective(const Announcement& call, int64_t now_ns) {
  const uint64_t at = ranks_[static_cast<size_t>(call.rank)].collectives++ - ended_;
  const int64_t deadline_ns = now_ns + static_cast<int64_t>(call.timeout_s * 1e9);
  if (at == open_.size()) open_.push_back({call, 0, deadline_ns, call});
  Collective& open = open_[at];
  if (open.first.head.fingerprint != call.head.fingerprint) {
    const bool in_order = open.first.rank < call.rank;
    const Announcement &low = in_order ? open.first : call, &high = in_order ? call : open.first;
    const std::string a = text_of(low), b = text_of(high);
    return Error(GSEL_ERR_MISMATCH, fmt::format("{} called {}, {} called {}{}; make the calls alike on every rank",
                                                roster_.named(low.rank), a, roster_.named(high.rank), b,
                                                a != b            ? ""
                                                : call.registered ? " with other offsets"
                                                                  : " with other counts or another operation"))
        .about_rank(roster_.shown(call.rank));
  }
  if (deadline_ns < open.deadline_ns) open.deadline_ns = deadline_ns, open.waits = call;
  if (++open.ranks == ranks_.size()) open_.pop_front(), ++ended_;  // earlier ones have ended before
  return {};
}

// "rank 0 on a waited for it in allreduce(count 16, f32, sum) on a stream (call 3), rank 1 on b ..."
std::string CallMatcher::late_text(int32_t rank, const Announcement& waits) const {
  const std::optional<Announcement>& last = ranks_[static_cast<size_t>(rank)].last;
  return fmt::format("{} waited for it in {} (call {}), rank {} {}", roster_.named(waits.rank), text_of(waits),
                     waits.number, roster_.shown(rank),
                     last ? fmt::format("last called {} (call {})", text_of(*last), last->number)
                          : std::string("has called nothing on a stream"));
}

std::optional<Error> CallMatcher::find_late(int64_t now_ns) const {
  for (size_t q = 0; q < ranks_.size(); ++q) {
    const auto rank = static_cast<int32_t>(q);
    const uint64_t next = ranks_[q].collectives - ended_;
    const Collective* open = next < open_.size() ? &open_[next] : nullptr;
    const Announcement* waits = open ? &open->waits : nullptr;
    if (ranks_[q].has_left && !waits) waits = unmet_by(rank);
    if (ranks_[q].has_left && waits)
      return Error(GSEL_ERR_PEER, fmt::format("{} left while {}", roster_.named(rank), late_text(rank, *waits)))
          .about_rank(roster_.shown(rank));
    if (open && now_ns > open->deadline_ns)
      return Error(GSEL_ERR_TIMEOUT,
                   fmt::format("timed out: {} is late: {}", roster_.named(rank), late_text(rank, *waits)))
          .about_rank(roster_.shown(rank));
  }
  return {};
}

// ---- messages -------------------------------------------------------------------------------------------------------

std::optional<Error> CallMatcher::take_messages(const Announcement& call, std::span<const uint64_t> counts) {
  const gsel_dtype dtype = call.head.dtype;
  std::optional<Error> error;
  const auto take = [&](int32_t peer, bool sends, uint64_t count) {
    if (!error) error = take_side(peer, sends, {dtype, count, call});
  };
  const auto ranks = static_cast<int32_t>(ranks_.size());
  if (call.head.kind == GSEL_COLLECTIVE_ALLTOALLV) {
    for (int32_t q = 0; q < ranks; ++q) {
      if (q == call.rank) continue;
      take(q, true, counts[static_cast<size_t>(q)]);
      take(q, false, counts[static_cast<size_t>(ranks + q)]);
    }
    return error;
  }
  take(call.head.root, call.head.kind != GSEL_COLLECTIVE_RECV, call.head.count);
  if (call.head.kind == GSEL_COLLECTIVE_SENDRECV) take(call.source, false, call.recv_count);
  return error;
}

std::optional<Error> CallMatcher::take_side(int32_t peer, bool sends, const Side& side) {
  const int32_t rank = side.call.rank;
  const auto key = sends ? std::pair(rank, peer) : std::pair(peer, rank);
  Pair& pair = pairs_[key];
  auto &own = sends ? pair.sends : pair.receives, &theirs = sends ? pair.receives : pair.sends;
  if (theirs.empty()) {
    own.push_back(side);
    return {};
  }
  const Side other = std::move(theirs.front());
  theirs.pop_front();
  if (pair.sends.empty() && pair.receives.empty()) pairs_.erase(key);
  if (other.dtype == side.dtype && other.count == side.count) return {};
  return Error(GSEL_ERR_MISMATCH,
               fmt::format("{} called {} with {} of {} for {}, {} called {} with {} of {} for it; give a message "
                           "and its receive one type and one count, which a transport of devices needs",
                           roster_.named(rank), text_of(side.call), side.count, dtype_name(side.dtype),
                           roster_.named(peer), roster_.named(peer), text_of(other.call), other.count,
                           dtype_name(other.dtype)))
      .about_rank(roster_.shown(peer));
}

// A message to or from the rank that the rank itself has not announced.
const Announcement* CallMatcher::unmet_by(int32_t rank) const {
  for (const auto& [ends, pair] : pairs_) {
    if (ends.second == rank && !pair.sends.empty()) return &pair.sends.front().call;
    if (ends.first == rank && !pair.receives.empty()) return &pair.receives.front().call;
  }
  return nullptr;
}

}  // namespace gsel::hosts
