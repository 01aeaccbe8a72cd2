// comm/hosts/arriving.cc: messages that arrive from other hosts, and the receives that take them; see messages.h.
#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "comm/call/collective.h"
#include "comm/hosts/messages.h"

namespace gsel::hosts {
namespace {

bool suits(int32_t wanted, int32_t tag) {
  return wanted == GSEL_ANY_TAG || wanted == tag;
}

}  // namespace

void Messages::take_frames() {
  for (int32_t q = 0; q < static_cast<int32_t>(peers_.size()); ++q)
    if (peers_[static_cast<size_t>(q)]) take_frames(q, peer(q));
}

void Messages::take_frames(int32_t rank, Peer& peer) {
  for (;;) {
    const size_t place = peer.frames_taken % kFrames;
    auto& posted = peer.posted[place];
    if (peer.gone || (!posted->has_ended() && !posted->test(0, &peer.gone))) return;
    Frame& frame = peer.frames[place];
    if (!take_frame(rank, peer, frame)) return;
    ++peer.frames_taken;
    ++moves_;
    posted.reset();
    posted.emplace(host_transport_, gsel_transfer{rank, kFrameTag, nullptr, &frame, sizeof frame}, &peer.gone);
  }
}

// false: there is no room for the message, and no receive matches it.
bool Messages::take_frame(int32_t rank, Peer& peer, const Frame& frame) {
  switch (frame.kind) {
    case FrameKind::leaves:
      if (frame.number != kNoAnswer) send_word(rank, peer, FrameKind::has_all, 0);
      peer.has_left = true;
      [[fallthrough]];
    case FrameKind::has_all:
      peer.leave_received = true;
      return true;
    case FrameKind::asks:
      std::memcpy(&peer.question.emplace(), frame.data, sizeof(Question));
      return true;
    case FrameKind::answers:
      peer.answered = frame.number;
      peer.answer.assign(frame.data, strnlen(frame.data, sizeof frame.data));
      return true;
    case FrameKind::refuses:
      receive_refusal(rank, frame);
      return true;
    case FrameKind::message:
      break;
  }
  const bool is_short = frame.bytes <= sizeof frame.data;
  const uint64_t cost = sizeof(Arrived) + (is_short ? frame.bytes : 0);
  if (kept_bytes_ + cost > kMostKept && kept_bytes_ > 0 && !is_wanted(rank, frame.tag)) return false;
  peer.received = frame.number;
  Arrived& message =
      peer.arrived.emplace_back(Arrived{frame.number, frame.count, frame.bytes, frame.tag, frame.dtype, is_short});
  if (is_short) message.data.assign(frame.data, frame.data + frame.bytes);
  kept_bytes_ += cost;
  return true;
}

bool Messages::is_wanted(int32_t rank, int32_t tag) const {
  return std::ranges::any_of(waiting_, [&](const Half* half) {
    return (half->call.root == rank || half->call.root == GSEL_ANY_RANK) && suits(half->call.tag, tag);
  });
}

void Messages::match() {
  for (auto next = waiting_.begin(); next != waiting_.end();) {
    Half& half = **next;
    try {
      match(half);
    } catch (...) {
      if (!half.of.failure_) half.of.failure_ = current_error();
      half.is_met = half.done = true;
    }
    next = half.is_met ? waiting_.erase(next) : std::next(next);
  }
  for (const Half* half : waiting_) keep_others(*half);
}

void Messages::match(Half& half) {
  const int32_t from = half.call.root;
  if (from != GSEL_ANY_RANK) {
    match_from(half, from);
  } else {
    for (int32_t q = 0; q < static_cast<int32_t>(peers_.size()) && !half.is_met; ++q)
      if (peers_[static_cast<size_t>(q)]) match_from(half, q);
  }
  if (half.is_met || half.call.kind != GSEL_COLLECTIVE_IPROBE) return;
  keep_others(half);
  half.call.received->source = GSEL_ANY_RANK;
  if (from == GSEL_ANY_RANK && roster_.here().size() > 1) probe_here(half);
  half.is_met = true;
}

// A receive that is also posted on this host may already be matched there.
bool Messages::match_from(Half& half, int32_t rank) {
  auto& arrived = peer(rank).arrived;
  const auto message = std::ranges::find_if(arrived, [&](const Arrived& a) { return suits(half.call.tag, a.tag); });
  if (message == arrived.end()) {
    const Peer& from = peer(rank);
    if (half.call.root == rank && (from.gone || from.has_left))
      fail_gone(half, from.gone ? std::string_view(from.gone->message()) : std::string_view());
    return false;
  }
  half.is_met = true;
  if (half.local && !half.local->cancel()) return true;
  half.local.reset();
  if (gsel_message* received = half.call.received) {
    received->source = rank;
    received->tag = message->tag;
    received->dtype = message->dtype;
    received->count = message->count;
  }
  if (row_of(half.call.kind).probes) return true;
  kept_bytes_ -= sizeof(Arrived) + message->data.size();
  Arrived taken = std::move(*message);
  arrived.erase(message);
  take(half, rank, taken);
  return true;
}

void Messages::take(Half& half, int32_t rank, Arrived& message) {
  const gsel_collective& call = half.call;
  if (message.dtype != call.dtype || message.count > call.count) return refuse(half, rank, message);
  half.call.root = rank;
  if (!message.is_kept)
    half.in.emplace(host_transport_, gsel_transfer{rank, data_tag(message.number), nullptr, call.recv, message.bytes});
  else if (message.posted && !message.posted->has_ended())
    half.kept = std::make_unique<Arrived>(std::move(message));
  else if (message.bytes > 0)
    std::memcpy(call.recv, message.data.data(), message.bytes);
}

// If the message does not fit the buffer, its sender still waits, and only the two calls fail. Otherwise the
// communicator breaks.
void Messages::refuse(const Half& half, int32_t rank, const Arrived& message) {
  const std::string sent =
      describe(GSEL_COLLECTIVE_SEND, message.dtype, 0, roster_.shown(roster_.rank()), message.count, {}, message.tag);
  const Error error = Error(GSEL_ERR_MISMATCH,
                            fmt::format("{} called {}, {} called {}; use one type, and a receive as long as the "
                                        "message or longer",
                                        roster_.named(rank), sent, roster_.named(roster_.rank()), text_of(half.whole)))
                          .about_rank(roster_.shown(rank));
  if (message.bytes <= most_buffered_) {
    local_.break_with(error);
    local_.throw_break_reason();
  }
  Peer& from = peer(rank);
  from.dropped.push_back({message.number, std::vector<char>(message.bytes),
                          word_to(rank, from, FrameKind::refuses, message.number, error.message())});
  wake_thread();
  throw Error(error);
}

void Messages::receive_refusal(int32_t rank, const Frame& frame) {
  for (Started* started : started_)
    for (Half& half : started->halves_)
      if (half.out && half.call.root == rank && half.out->frame.number == frame.number)
        half.refused = Error(GSEL_ERR_MISMATCH, std::string(frame.data, strnlen(frame.data, sizeof frame.data)))
                           .about_rank(roster_.shown(rank));
}

// Fetches unmatched messages before those that the receive may match. Messages that do not fit the buffer stay, since
// their senders wait.
void Messages::keep_others(const Half& half) {
  for_each_peer(half, [this](int32_t rank, Peer& peer) {
    for (Arrived& message : peer.arrived) {
      if (message.is_kept || message.bytes > most_buffered_ || peer.gone) continue;
      if (kept_bytes_ + message.bytes > kMostKept) return;
      message.data.resize(message.bytes);
      kept_bytes_ += message.bytes;
      message.is_kept = true;
      message.posted.emplace(host_transport_,
                             gsel_transfer{rank, data_tag(message.number), nullptr, message.data.data(), message.bytes},
                             &peer.gone);
    }
  });
}

// For an iprobe of any rank: probes the ranks of this host.
void Messages::probe_here(Half& half) {
  local_.run(half.call, nullptr);
  gsel_message& found = *half.call.received;
  if (found.source >= 0) found.source = roster_.here()[static_cast<size_t>(found.source)];
}

// The ranks of this host have left: whether one had sent what the half receives. If not, nothing is posted here any
// more.
bool Messages::has_come_here(Half& half) {
  if (!half.local) return false;
  gsel_message found = GSEL_MESSAGE_INIT;
  gsel_collective probe = GSEL_COLLECTIVE_INIT;
  probe.kind = GSEL_COLLECTIVE_IPROBE;
  probe.root = GSEL_ANY_RANK;
  probe.tag = half.call.tag;
  probe.received = &found;
  local_.run(probe, nullptr);
  if (found.source >= 0 || !half.local->cancel()) return true;
  half.local.reset();
  return false;
}

}  // namespace gsel::hosts
