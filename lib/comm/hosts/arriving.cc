// comm/hosts/arriving.cc: messages of other hosts that arrive, and the receives that take them; see messages.h.
#include <algorithm>
#include <cstring>
#include <utility>

#include "base/dtype.h"
#include "base/error.h"
#include "comm/call/collective.h"
#include "comm/hosts/messages.h"

namespace gsel::hosts {
namespace {

bool suits(int32_t wanted, int32_t tag) {
  return wanted == GSEL_ANY_TAG || wanted == tag;
}

}  // namespace

bool Messages::advance(std::list<Half>& halves) {
  const std::lock_guard lock(mutex_);
  if (is_closed_) fail(GSEL_ERR_ABORTED, "the communicator was freed with messages under way");
  local_.throw_what_broke();
  take_frames();
  match();
  bool all = true;
  for (Half& half : halves) {
    if (!half.done) advance(half);
    all = all && half.done;
  }
  return all;
}

void Messages::advance(Half& half) {
  if (half.local) {
    half.done = half.local->wait(0);
    if (half.done && half.call.received && half.call.received->source >= 0)
      half.call.received->source = roster_.here()[static_cast<size_t>(half.call.received->source)];
    return;
  }
  while (!half.posted.empty() && half.posted.back().test(0)) half.posted.pop_back();
  half.done = half.posted.empty() && (half.frame || half.is_met);
}

void Messages::take_frames() {
  for (int32_t q = 0; q < static_cast<int32_t>(peers_.size()); ++q)
    if (peers_[static_cast<size_t>(q)]) take_frames(q, *peers_[static_cast<size_t>(q)]);
}

void Messages::take_frames(int32_t rank, Peer& peer) {
  for (;;) {
    const size_t place = peer.came % kFrames;
    auto& posted = peer.posted[place];
    if (peer.gone || !posted->test(0, &peer.gone)) return;
    ++peer.came;
    Frame& frame = peer.frames[place];
    if (frame.says != Says::message) {
      peer.leave_heard = true;
      if (frame.says == Says::leaves) say(rank, peer, Says::has_all);
    }
    Arrived message{frame.number, frame.count, frame.bytes, frame.tag, frame.dtype, {}};
    if (frame.bytes <= sizeof frame.data) message.data.assign(frame.data, frame.data + frame.bytes);
    if (frame.says == Says::message) peer.arrived.push_back(std::move(message));
    posted.reset();
    posted.emplace(carrier_, gsel_transfer{rank, kFrameTag, nullptr, &frame, sizeof frame}, &peer.gone);
  }
}

void Messages::match() {
  for (auto next = waiting_.begin(); next != waiting_.end();) {
    Half& half = **next;
    match(half);
    next = half.is_met ? waiting_.erase(next) : std::next(next);
  }
}

void Messages::match(Half& half) {
  const int32_t from = half.call.root;
  if (from != GSEL_ANY_RANK) {
    match_from(half, from);
  } else {
    for (int32_t q = 0; q < static_cast<int32_t>(peers_.size()) && !half.is_met; ++q)
      if (peers_[static_cast<size_t>(q)]) match_from(half, q);
    if (!half.is_met) look_here(half);
  }
  if (half.is_met || half.call.kind != GSEL_COLLECTIVE_IPROBE) return;
  half.call.received->source = GSEL_ANY_RANK;
  half.is_met = true;
}

bool Messages::match_from(Half& half, int32_t rank) {
  auto& arrived = peers_[static_cast<size_t>(rank)]->arrived;
  const auto message = std::ranges::find_if(arrived, [&](const Arrived& a) { return suits(half.call.tag, a.tag); });
  if (message == arrived.end()) {
    if (const auto& gone = peers_[static_cast<size_t>(rank)]->gone; gone && half.call.root == rank)
      fail_gone(half, *gone);
    return false;
  }
  half.is_met = true;
  if (gsel_message* received = half.call.received) {
    received->source = rank;
    received->tag = message->tag;
    received->dtype = message->dtype;
    received->count = message->count;
  }
  if (row_of(half.call.kind).probes) return true;
  take(half, rank, *message);
  arrived.erase(message);
  return true;
}

void Messages::take(Half& half, int32_t rank, const Arrived& message) {
  const gsel_collective& call = half.call;
  if (message.dtype != call.dtype || message.count > call.count) {
    local_.break_with(
        Error(GSEL_ERR_MISMATCH, fmt::format("{} called send(count {}, {}) for {}, which called {}; a receive has the "
                                             "type of its message and is as long, or longer",
                                             roster_.named(rank), message.count, dtype_name(message.dtype),
                                             roster_.named(roster_.rank()), message_text(call)))
            .about_rank(roster_.shown(rank)));
    local_.throw_what_broke();
  }
  if (message.bytes > sizeof(Frame::data))
    half.posted.emplace_back(carrier_,
                             gsel_transfer{rank, data_tag(message.number), nullptr, call.recv, message.bytes});
  else if (message.bytes > 0)
    std::memcpy(call.recv, message.data.data(), message.bytes);
}

// A receive from any rank, of those of this host.
void Messages::look_here(Half& half) {
  gsel_message found = GSEL_MESSAGE_INIT;
  gsel_collective probe = half.call;
  probe.kind = GSEL_COLLECTIVE_IPROBE;
  probe.received = &found;
  local_.run(probe, nullptr);
  if (found.source < 0) return;
  half.is_met = true;
  gsel_collective here = half.call;
  here.root = found.source;
  here.tag = found.tag;
  if (!row_of(here.kind).probes) {
    half.local = local_.start({&here, 1});
    return;
  }
  found.source = roster_.here()[static_cast<size_t>(found.source)];
  *half.call.received = found;
}

}  // namespace gsel::hosts
