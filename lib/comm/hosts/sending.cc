// comm/hosts/sending.cc: sends messages and other frames; see messages.h.
#include <cstring>

#include "base/types.h"
#include "comm/hosts/messages.h"

namespace gsel::hosts {
namespace {

constexpr int64_t kStayNs = 200'000;  // wait of the caller before a message stays in the buffer

}  // namespace

std::unique_ptr<Messages::Out> Messages::word_to(int32_t rank, Peer& peer, FrameKind kind, uint64_t number,
                                                 std::string_view bytes) {
  auto word = std::make_unique<Out>();
  word->frame.kind = kind;
  word->frame.number = number;
  bytes.copy(word->frame.data, sizeof word->frame.data - 1);
  word->posted.emplace_back(host_transport_, gsel_transfer{rank, kFrameTag, &word->frame, nullptr, sizeof(Frame)},
                            &peer.gone);
  return word;
}

// A message that may stay in the buffer is copied before it is sent.
void Messages::begin_send(Half& half) {
  const gsel_collective& call = half.call;
  has_sent_ = true;
  half.out = std::make_unique<Out>();
  Frame& frame = half.out->frame;
  frame.number = ++peer(call.root).sent;
  frame.count = call.count;
  frame.bytes = call.count * dtype_bytes(call.dtype);
  frame.tag = call.tag;
  frame.dtype = call.dtype;
  const bool is_short = frame.bytes <= sizeof frame.data;
  const auto* from = static_cast<const char*>(call.send);
  if (is_short && frame.bytes > 0) std::memcpy(frame.data, from, frame.bytes);
  half.out->posted.emplace_back(host_transport_, gsel_transfer{call.root, kFrameTag, &frame, nullptr, sizeof frame});
  if (is_short) return;
  if (frame.bytes <= most_buffered_) {
    half.out->copy.assign(from, from + frame.bytes);
    from = half.out->copy.data();
  }
  half.out->posted.emplace_back(host_transport_,
                                gsel_transfer{call.root, data_tag(frame.number), from, nullptr, frame.bytes});
}

void Messages::advance_send(Half& half) {
  auto& posted = half.out->posted;
  while (!posted.empty() && posted.back().test(0)) posted.pop_back();
  Peer& to = peer(half.call.root);
  if (!posted.empty()) {
    const bool fits = half.out->frame.bytes <= most_buffered_ && to.behind.size() < kBufferedMessages;
    if (!fits || os::now_ns() - half.began_ns < kStayNs) return;
    to.behind.push_back(std::move(half.out));
    wake_thread();
  }
  if (half.out && half.out->frame.bytes > most_buffered_)
    take_frames(half.call.root, to);  // a refusal arrives before the receiver takes the bytes
  half.out.reset();
  half.done = true;
  ++moves_;
  if (half.refused) throw Error(*half.refused);
}

// Releases what has been sent, and receives refused messages.
void Messages::tend(int32_t rank, Peer& peer) {
  const auto has_gone = [&peer](const std::unique_ptr<Out>& out) {
    while (!peer.gone && !out->posted.empty() && out->posted.back().test(0, &peer.gone)) out->posted.pop_back();
    return out->posted.empty();
  };
  if (!peer.control_frames.empty()) std::erase_if(peer.control_frames, has_gone);
  if (!peer.behind.empty()) moves_ += std::erase_if(peer.behind, has_gone);
  std::erase_if(peer.dropped, [&](Dropped& message) {
    if (message.posted) return message.posted->test(0, &peer.gone);
    if (peer.gone || !has_gone(message.refusal)) return false;
    message.posted.emplace(
        host_transport_,
        gsel_transfer{rank, data_tag(message.number), nullptr, message.data.data(), message.data.size()}, &peer.gone);
    return false;
  });
}

}  // namespace gsel::hosts
