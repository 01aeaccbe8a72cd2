// comm/hosts/messages.cc: see messages.h. Requests: how they begin and end.
#include "comm/hosts/messages.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "base/types.h"
#include "comm/call/collective.h"
#include "comm/hosts/pause.h"

namespace gsel::hosts {
namespace {

constexpr int64_t kLeaveNs = 2'000'000'000;  // wait for sent messages to arrive
constexpr int64_t kGoneNs = 100'000'000;     // wait until the transport has taken the last frames
constexpr size_t kMostToldOfLeaving = 256;   // ranks: each tells each

gsel_collective half_of(const gsel_collective& both, bool sends) {
  gsel_collective half = both;
  half.kind = sends ? GSEL_COLLECTIVE_SEND : GSEL_COLLECTIVE_RECV;
  if (sends) return half;
  half.root = both.source;
  half.count = both.recv_count;
  half.tag = both.recv_tag;
  return half;
}

}  // namespace

Messages::Messages(const Roster& roster, shm::Endpoint& local, HostTransport& host_transport, Rank& rank)
    : roster_(roster),
      local_(local),
      host_transport_(host_transport),
      rank_(rank),
      most_buffered_(shm::Layout(static_cast<int32_t>(roster.ranks())).slot_bytes),
      peers_(roster.ranks()) {
  for (int32_t q = 0; q < static_cast<int32_t>(peers_.size()); ++q) {
    if (roster.is_here(q)) continue;
    auto& peer = peers_[static_cast<size_t>(q)] = std::make_unique<Peer>();
    for (size_t i = 0; i < kFrames; ++i)
      peer->posted[i].emplace(host_transport, gsel_transfer{q, kFrameTag, nullptr, &peer->frames[i], sizeof(Frame)},
                              &peer->gone);  // it may have left already
  }
}

Messages::~Messages() = default;

// Frames arrive in order: a rank that has received `leaves` has received everything. Where nothing was sent, nobody
// answers, and the frame is for ranks that wait for a message of any rank.
void Messages::leave(bool needs_answer) noexcept {
  if (!needs_answer && roster_.ranks() > kMostToldOfLeaving) return;
  const std::lock_guard lock(mutex_);
  try {
    for (size_t q = 0; q < peers_.size(); ++q)
      if (peers_[q] && !peers_[q]->gone && !peers_[q]->has_left)
        send_word(static_cast<int32_t>(q), *peers_[q], FrameKind::leaves, needs_answer ? 0 : kNoAnswer);
    const int64_t end = os::now_ns() + (needs_answer ? kLeaveNs : kGoneNs);
    const Pause pause;
    const auto waits = [needs_answer](const auto& peer) {
      if (!peer || peer->gone) return false;
      return needs_answer ? !peer->leave_received || !peer->behind.empty() : !peer->control_frames.empty();
    };
    while (std::ranges::any_of(peers_, waits) && os::now_ns() < end && !local_.is_broken()) {
      take_frames();
      for (size_t q = 0; q < peers_.size(); ++q)
        if (peers_[q]) tend(static_cast<int32_t>(q), *peers_[q]);
      pause.make();
    }
  } catch (...) {  // the control reports to ranks that wait for this one
  }
}

void Messages::close() noexcept {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
  const std::lock_guard lock(mutex_);
  is_closed_ = true;
  for (Started* started : started_) {
    for (Half& half : started->halves_)
      if (half.local && !half.done) try {  // has ended, since the local communicator is broken
          half.local->wait(-1);
        } catch (...) {
        }
    if (!started->done_) {
      Error error(GSEL_ERR_ABORTED, "the communicator was freed with messages under way");
      try {
        local_.throw_break_reason();
      } catch (...) {
        error = current_error();
      }
      end(*started, &error);
    }
    started->halves_.clear();
  }
  waiting_.clear();
  peers_.clear();
}

bool Messages::under_way() const {
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(started_, [](const Started* one) { return !one->done_; });
}

// ---- calls --------------------------------------------------------------------------------------------------------

void Messages::begin(Started& started) {
  const std::lock_guard lock(mutex_);
  if (is_closed_) fail(GSEL_ERR_ABORTED, "the communicator was freed");
  started_.push_back(&started);
  const int64_t now = os::now_ns();
  for (const gsel_collective& call : started.calls_) {
    const bool both = call.kind == GSEL_COLLECTIVE_SENDRECV;
    if (both) started.halves_.push_back({started, call, half_of(call, true), now});
    started.halves_.push_back({started, call, both ? half_of(call, false) : call, now});
  }
  for (Half& half : started.halves_) begin(half);
}

void Messages::begin(Half& half) {
  const gsel_collective& call = half.call;
  if (call.kind == GSEL_COLLECTIVE_SEND && is_remote(call.root)) return begin_send(half);
  gsel_collective here = call;
  if (!is_remote(call.root) && call.root != GSEL_ANY_RANK) {
    here.root = roster_.local_of(call.root);
    half.local = local_.start({&here, 1});
    return;
  }
  waiting_.push_back(&half);
  if (call.kind == GSEL_COLLECTIVE_IPROBE) {
    take_frames();
    match();
  } else if (call.root == GSEL_ANY_RANK && roster_.here().size() > 1) {
    half.local = local_.start_open(here);
  }
}

void Messages::advance(Half& half) {
  if (half.out) return advance_send(half);
  if (half.local) {
    if (!half.local->wait(0)) return;
    half.was_here = half.done = true;
    std::erase(waiting_, &half);
    if (half.call.received && half.call.received->source >= 0)
      half.call.received->source = roster_.here()[static_cast<size_t>(half.call.received->source)];
  } else if (half.in) {
    half.done = half.in->test(0);
  } else if (half.kept) {
    Peer& from = peer(half.call.root);
    half.done = half.kept->posted->test(0, &from.gone);
    if (!half.done && from.gone) fail_gone(half, from.gone->message());
    if (half.done) std::copy(half.kept->data.begin(), half.kept->data.end(), static_cast<char*>(half.call.recv));
  } else {
    half.done = half.is_met;
  }
  if (half.done) ++moves_;
}

// A call that fails by itself waits for the others started with it.
void Messages::progress(Started& started) {
  if (started.done_) return;
  bool all = true;
  for (Half& half : started.halves_) {
    if (!half.done) try {
        advance(half);
      } catch (...) {
        if (!started.failure_) started.failure_ = current_error();
        half.done = true;
        std::erase(waiting_, &half);
      }
    all = all && half.done;
  }
  if (!all) try {
      for (Half& half : started.halves_)
        if (!half.done) fail_if_alone(half);
      local_.throw_break_reason();
      if (started.since_ns_ == 0) return;
      const double waited = static_cast<double>(os::now_ns() - started.since_ns_) * 1e-9;
      for (const Half& half : started.halves_) {
        const double own = half.call.timeout_s;
        const double most = own > 0 ? own : static_cast<double>(started.timeout_ns_) * 1e-9;
        if (!half.done && waited > most) fail_late(half, most);
      }
      return;
    } catch (...) {
      if (!started.failure_) started.failure_ = current_error();
    }
  end(started, nullptr);
}

void Messages::end(Started& started, const Error* failure) noexcept {
  if (started.done_) return;
  if (failure && !started.failure_) started.failure_ = *failure;
  std::erase_if(waiting_, [&](const Half* half) { return &half->of == &started; });
  started.done_ = true;
  ++moves_;
  for (const Half& half : started.halves_) {
    if (started.failure_ || !half.done) continue;
    const bool sends = half.call.kind == GSEL_COLLECTIVE_SEND;
    const uint64_t bytes = sends ? half.call.count * dtype_bytes(half.call.dtype) : 0;
    const bool is_part = half.whole.kind == GSEL_COLLECTIVE_SENDRECV;
    if (is_part ? sends : !half.was_here) rank_.count(half.whole.kind, bytes);
    if (is_part && half.was_here) rank_.count_half_here(sends, bytes);
  }
  if (const auto listener = std::move(started.listener_)) listener->ended();
}

// Cancels unmatched local halves; transfers under way end with the transport's work.
void Messages::give_up(Started& started) noexcept {
  std::list<Half> halves;
  {
    const std::lock_guard lock(mutex_);
    std::erase(started_, &started);
    std::erase_if(waiting_, [&](const Half* half) { return &half->of == &started; });
    halves.swap(started.halves_);
  }
  for (Half& half : halves)
    if (half.local && !half.done) try {
        if (!half.local->cancel()) half.local->wait(-1);
      } catch (...) {
      }
}

// ---- errors ---------------------------------------------------------------------------------------------------------

std::string Messages::text_of(const gsel_collective& call) const {
  const bool is_rank = call.root >= 0;
  std::string text = describe(call.kind, call.dtype, call.op, is_rank ? roster_.shown(call.root) : call.root,
                              call.count, {}, call.tag);
  if (given(call.label)) text += fmt::format(" \"{}\"", view(call.label).substr(0, 15));
  return text;
}

// The peer has left or ended, which breaks the communicator of a rank that waits for it.
void Messages::fail_gone(const Half& half, std::string_view why) {
  const int32_t rank = half.call.root;
  local_.await_break(kCauseNs);
  local_.break_with(Error(GSEL_ERR_PEER, fmt::format("{} left or ended before {}{}{}", roster_.named(rank),
                                                     text_of(half.whole), why.empty() ? "" : ": ", why))
                        .about_rank(roster_.shown(rank)));
  local_.throw_break_reason();
  fail(GSEL_ERR_PEER, "{} is gone", roster_.named(rank));
}

void Messages::await_notified() noexcept {
  const std::lock_guard lock(mutex_);
  if (!is_closed_) rank_.await_notified();
}

// For a receive from any rank.
void Messages::fail_if_alone(Half& half) {
  if (half.call.root != GSEL_ANY_RANK || half.is_met || !local_.all_others_left()) return;
  bool all_left = true;
  for_each_peer(half, [&](int32_t, const Peer& peer) { all_left = all_left && (peer.gone || peer.has_left); });
  if (!all_left || has_come_here(half)) return;
  local_.break_with(Error(GSEL_ERR_PEER, fmt::format("every other rank left while {} waited in {}",
                                                     roster_.named(roster_.rank()), text_of(half.whole)))
                        .about_rank(roster_.shown(roster_.rank() == 0 ? 1 : 0)));
}

void Messages::fail_late(const Half& half, double seconds) {
  const int32_t peer = half.call.root;
  const std::string own = roster_.named(roster_.rank()), call = text_of(half.whole), time = seconds_text(seconds);
  const std::string text =
      peer >= 0 ? fmt::format("timed out: {} is late: {} waited {} in {}", roster_.named(peer), own, time, call)
                : fmt::format("timed out: no rank sent what {} waited for: {} in {}", own, time, call);
  local_.break_with(Error(GSEL_ERR_TIMEOUT, text).about_rank(peer >= 0 ? roster_.shown(peer) : -1));
  local_.throw_break_reason();
  fail(GSEL_ERR_TIMEOUT, "timed out");
}

}  // namespace gsel::hosts
