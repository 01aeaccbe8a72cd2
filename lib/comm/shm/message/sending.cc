// comm/shm/message/sending.cc: a message that is sent. Messages to one rank enter the channel one behind the other. An
// offer that the receiver cannot decline does not hold up later messages. A sender that gives up first withdraws its
// offer, so that no rank copies from memory that belongs to the caller again.
#include <sched.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "comm/request.h"
#include "comm/shm/link.h"
#include "comm/shm/message/channel.h"

namespace gsel::shm {
static_assert(kChannelSlots >= kBufferedMessages && kChannelLines >= kBufferedMessages);
static_assert(kChannelOffers <= 32, "bits of Peer::offers");

bool Link::all_taken(int32_t rank, uint64_t lines) {
  Peer& other = peer(rank);
  if (other.taken < lines) other.taken = arena_->channel(rank_, rank).taken.load(std::memory_order_acquire);
  return other.taken >= lines;
}

bool Link::has_room(int32_t rank, uint64_t lines) {
  const uint64_t sent = peer(rank).sent;
  return sent < lines || all_taken(rank, sent + 1 - lines);
}

ChannelLine& Link::next_line(const Half& half, const Call& call) {
  ChannelLine& line = arena_->channel(rank_, half.peer).line[peer(half.peer).sent % kChannelLines];
  line.word = word_of(call.dtype, half.bytes, half.tag);
  return line;
}

void Link::send_line(const Half& half, ChannelLine& line) {
  notify(half.peer, line.sequence, ++peer(half.peer).sent);
  hit(Step::sent, half.number);
  ++moves_;
}

bool Link::advance_send(Transfer& transfer) {
  Half& half = transfer.out;
  Peer& other = peer(half.peer);
  if (half.stage == Half::Stage::offered && !settle_offer(transfer)) return false;
  if (half.stage == Half::Stage::done) return true;
  if (other.send_turn != half.turn) return false;
  if (half.bytes <= kLineBytes) {
    if (!has_room(half.peer, kChannelLines)) return false;
    ChannelLine& line = next_line(half, transfer.call);
    std::memcpy(line.payload, transfer.call.send, half.bytes);
    send_line(half, line);
  } else if (half.bytes > arena_->layout().slot_bytes && offer(transfer)) {
    return false;
  } else if (!send_pieces(transfer)) {
    return false;
  }
  ++other.send_turn;
  half.stage = Half::Stage::done;
  return true;
}

bool Link::send_pieces(Transfer& transfer) {
  Half& half = transfer.out;
  Stream& stream = half.stream;
  while (!stream.whole()) {
    if (!has_room(half.peer, kChannelSlots)) return false;
    const uint64_t some = std::min<uint64_t>(arena_->layout().slot_bytes, stream.bytes - stream.moved);
    ChannelLine& line = next_line(half, transfer.call);
    route_of(line) = {Way::slot, 0, half.bytes, 0};
    std::memcpy(arena_->slot(rank_, half.peer, peer(half.peer).sent), transfer.call.send + stream.moved, some);
    stream.moved += some;
    send_line(half, line);
  }
  return true;
}

// Whether the data is on offer, or will be once there is room.
bool Link::offer(Transfer& transfer) {
  Half& half = transfer.out;
  Peer& other = peer(half.peer);
  const char* data = transfer.call.send;
  Route route{Way::remote, 0, half.bytes, reinterpret_cast<uintptr_t>(data)};
  if (member(half.peer).process == member(rank_).process) {
    route.way = Way::pointer;
  } else if (const uint64_t offset = family_->offset_of(data, half.bytes)) {
    route.way = Way::offset;
    route.place = offset;
  } else if (other.reads_us == Peer::Reading::no || half.bytes < tuning_.single_copy_from) {
    return false;
  }
  route.offer = static_cast<uint32_t>(std::countr_one(other.offers));
  if (route.offer >= kChannelOffers || !has_room(half.peer, kChannelLines)) return true;
  half.offer = route.offer;
  half.stage = Half::Stage::offered;
  other.offers |= 1u << route.offer;
  arena_->channel(rank_, half.peer).offer[route.offer].state.store(kOpen, std::memory_order_relaxed);
  ChannelLine& line = next_line(half, transfer.call);
  route_of(line) = route;
  send_line(half, line);
  if (route.way != Way::remote || other.reads_us == Peer::Reading::yes) ++other.send_turn;
  return true;
}

// Whether the offer has ended; what is declined travels in pieces. Others may go on behind one that is known not to be.
bool Link::settle_offer(Transfer& transfer) {
  Half& half = transfer.out;
  Peer& other = peer(half.peer);
  ChannelOffer& offer = arena_->channel(rank_, half.peer).offer[half.offer];
  const uint64_t state = offer.state.load(std::memory_order_acquire);
  const bool holds_up = other.send_turn == half.turn;
  if (holds_up && state == kDeclined) other.reads_us = Peer::Reading::no;
  if (holds_up && (state == kSeen || state == kClaimed || state == kTaken)) other.reads_us = Peer::Reading::yes;
  if (holds_up && state > kOpen && state != kDeclined) {
    ++other.send_turn;
    ++moves_;
  }
  if (state < kTaken) return false;
  ++moves_;
  other.offers &= ~(1u << half.offer);
  half.stage = state == kDeclined ? Half::Stage::moving : Half::Stage::done;
  if (state == kRefused) {
    const Envelope own{rank_, half.tag, transfer.call.dtype, half.bytes};
    transfer.failure = std::make_unique<Error>(disagreement(own, half.peer, offer.wanted).about_rank(half.peer));
  }
  return true;
}

// After a failure. Whoever reads the data in this process ends in bounded time; from another, it does no harm.
void Link::withdraw(Half& half) noexcept {
  if (half.stage != Half::Stage::offered) return;
  half.stage = Half::Stage::done;
  ChannelOffer& offer = arena_->channel(rank_, half.peer).offer[half.offer];
  if (answer(offer, kWithdrawn) || member(half.peer).process != member(rank_).process) return;
  while (offer.state.load(std::memory_order_acquire) < kTaken) sched_yield();
}

}  // namespace gsel::shm
