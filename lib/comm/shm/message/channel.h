// comm/shm/message/channel.h: the contents of the lines of a channel, the ring buffer of messages from one rank to
// another. A line's word has what a receive is matched by: type, tag, and the length of a message that is in the line
// itself. Does not know which calls send and receive.
#pragma once

#include "comm/shm/memory/arena.h"
#include "comm/shm/message/transfer.h"

namespace gsel::shm {

static_assert(sizeof(Route) <= kLineBytes);

// State of a message that is offered or sent in several chunks. The sender opens, withdraws and cancels it; the
// receiver makes the other changes. From kTaken on the message has ended. The entry of a message that was cancelled or
// sent in chunks is reused only after the receiver has set it to kTaken.
enum Offer : uint64_t {
  kOpen = 1,
  kSeen,      // set aside; the receiver can read it, or has some of its chunks
  kInChunks,  // set aside; the receiver cannot read it and waits for chunks
  kClaimed,   // matched; is being read or arrives in chunks
  kDeclined,  // matched; the receiver cannot read it and waits for chunks
  kTaken,
  kRefused,    // the receive is of another type, or too short
  kWithdrawn,  // the sender's call failed
  kCancelled
};

constexpr uint64_t kElsewhere = 255;  // instead of the length: the message is not in the line

inline uint64_t word_of(gsel_dtype dtype, uint64_t bytes, int32_t tag) {
  return static_cast<uint64_t>(dtype) << 56 | (bytes <= kLineBytes ? bytes : kElsewhere) << 48 |
         static_cast<uint32_t>(tag);
}
inline bool in_line(uint64_t word) {
  return (word >> 48 & 255) != kElsewhere;
}

inline Route& route_of(ChannelLine& line) {
  return *reinterpret_cast<Route*>(line.payload);
}

inline Envelope envelope_of(int32_t source, ChannelLine& line) {
  const uint64_t word = line.word;
  return {source, static_cast<int32_t>(word & UINT32_MAX), static_cast<gsel_dtype>(word >> 56),
          in_line(word) ? word >> 48 & 255 : route_of(line).bytes};
}

// In ChannelOffer::wanted: type and count of the receive, and whether it was for any rank or any tag.
constexpr uint64_t kWantedAnyRank = uint64_t{1} << 55, kWantedAnyTag = uint64_t{1} << 54;
constexpr uint64_t kWantedCount = kWantedAnyTag - 1;

// Sets the state of an offer that no receive has matched yet; false: it was matched, withdrawn or cancelled before.
inline bool answer(ChannelOffer& offer, Offer what) {
  uint64_t now = offer.state.load(std::memory_order_relaxed);
  while (now == kOpen || now == kSeen || now == kInChunks)
    if (offer.state.compare_exchange_strong(now, what, std::memory_order_seq_cst)) return true;
  return false;
}

}  // namespace gsel::shm
