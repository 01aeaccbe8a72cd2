// comm/shm/message/sending.cc: sends messages. Messages to one rank enter the channel in the order started. An offer
// that the receiver cannot decline does not hold up later messages. A sender that gives up first withdraws its offer,
// so that no rank copies from memory that belongs to the caller again. A message that no receive has matched can be
// cancelled until all of it is sent; the receiver then finds the state kCancelled and drops the chunks that it has.
#include <sched.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "comm/interface/backend.h"
#include "comm/shm/message/channel.h"
#include "comm/shm/message/mailbox.h"

namespace gsel::shm {
static_assert(kChannelSlots >= kBufferedMessages && kChannelLines >= kBufferedMessages);
static_assert(kChannelOffers <= 32, "bits of Peer::offers");

bool Mailbox::all_taken(int32_t rank, uint64_t lines) {
  Peer& other = peer(rank);
  if (other.taken < lines) other.taken = at_.arena().channel(at_.rank(), rank).taken.load(std::memory_order_acquire);
  return other.taken >= lines;
}

bool Mailbox::has_room(int32_t rank, uint64_t lines) {
  const uint64_t sent = peer(rank).sent;
  return sent < lines || all_taken(rank, sent + 1 - lines);
}

ChannelLine& Mailbox::next_line(const Half& half, const Call& call) {
  ChannelLine& line = at_.arena().channel(at_.rank(), half.peer).line[peer(half.peer).sent % kChannelLines];
  line.word = word_of(call.dtype, half.bytes, half.tag);
  return line;
}

void Mailbox::send_line(const Half& half, ChannelLine& line) {
  signals_.notify(half.peer, line.sequence, ++peer(half.peer).sent);
  hit(Step::sent, half.number);
  ++moves_;
}

bool Mailbox::advance_send(Transfer& transfer) {
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
  } else if (half.bytes > at_.arena().layout().slot_bytes && !half.announced && offer(transfer)) {
    return false;
  } else if (!send_chunks(transfer)) {
    return false;
  }
  ++other.send_turn;
  half.stage = Half::Stage::done;
  return true;
}

// A message of one chunk needs no offer: it has ended when it is sent.
bool Mailbox::send_chunks(Transfer& transfer) {
  Half& half = transfer.out;
  Stream& stream = half.stream;
  const bool several = half.bytes > at_.arena().layout().slot_bytes;
  while (!stream.whole()) {
    if (!has_room(half.peer, kChannelSlots)) return false;
    if (several && !half.announced && !take_place(half)) return false;
    const uint64_t some = std::min<uint64_t>(at_.arena().layout().slot_bytes, stream.bytes - stream.moved);
    ChannelLine& line = next_line(half, transfer.call);
    route_of(line) = {half.announced ? Way::chunk : Way::slot, half.offer, half.bytes, 0};
    std::memcpy(at_.arena().slot(at_.rank(), half.peer, peer(half.peer).sent), transfer.call.send + stream.moved, some);
    stream.moved += some;
    half.announced = true;
    send_line(half, line);
  }
  if (several) peer(half.peer).left_behind |= 1u << half.offer;
  return true;
}

// Takes a free offer of the channel; false: there is none. Offers in left_behind become free when the receiver sets
// kTaken.
bool Mailbox::take_place(Half& half) {
  Peer& other = peer(half.peer);
  Channel& channel = at_.arena().channel(at_.rank(), half.peer);
  for (uint32_t left = other.left_behind; left != 0; left &= left - 1) {
    const int place = std::countr_zero(left);
    if (channel.offer[place].state.load(std::memory_order_acquire) != kTaken) continue;
    other.left_behind &= ~(1u << place);
    other.offers &= ~(1u << place);
  }
  const auto place = static_cast<uint32_t>(std::countr_one(other.offers));
  if (place >= kChannelOffers) return false;
  half.offer = place;
  other.offers |= 1u << place;
  channel.offer[place].state.store(kOpen, std::memory_order_relaxed);
  return true;
}

// The way of a message longer than a slot, as far as its sender knows; Way::slot: in chunks.
Way Mailbox::way_to(int32_t rank, const char* data, uint64_t bytes) const {
  if (at_.is_thread_here(rank)) return Way::pointer;
  if (memory_.offset_of(data, bytes) != 0) return Way::offset;
  return peer(rank).reads_us == Peer::Reading::no || bytes < tuning_.single_copy_from ? Way::slot : Way::remote;
}

// false: the message is sent in chunks. true: it is offered, or will be when there is room.
bool Mailbox::offer(Transfer& transfer) {
  Half& half = transfer.out;
  Peer& other = peer(half.peer);
  const char* data = transfer.call.send;
  Route route{way_to(half.peer, data, half.bytes), kNoOffer, half.bytes, reinterpret_cast<uintptr_t>(data)};
  if (route.way == Way::slot) return false;
  if (route.way == Way::offset) route.place = memory_.offset_of(data, half.bytes);
  if (!has_room(half.peer, kChannelLines) || !take_place(half)) return true;
  route.offer = half.offer;
  half.stage = Half::Stage::offered;
  half.announced = true;
  ChannelLine& line = next_line(half, transfer.call);
  route_of(line) = route;
  send_line(half, line);
  if (route.way != Way::remote || other.reads_us == Peer::Reading::yes) ++other.send_turn;
  return true;
}

// Whether the offer has ended. A declined message is sent in chunks. After any other answer, later messages may
// proceed.
bool Mailbox::settle_offer(Transfer& transfer) {
  Half& half = transfer.out;
  Peer& other = peer(half.peer);
  ChannelOffer& offer = at_.arena().channel(at_.rank(), half.peer).offer[half.offer];
  const uint64_t state = offer.state.load(std::memory_order_acquire);
  const bool holds_up = other.send_turn == half.turn;
  if (state == kDeclined || state == kInChunks) {
    if (holds_up) other.reads_us = Peer::Reading::no;
    ++moves_;
    half.stage = Half::Stage::moving;
    return true;
  }
  if (holds_up && (state == kSeen || state == kClaimed || state == kTaken)) other.reads_us = Peer::Reading::yes;
  if (holds_up && state > kOpen) {
    ++other.send_turn;
    ++moves_;
  }
  if (state < kTaken) return false;
  ++moves_;
  other.offers &= ~(1u << half.offer);
  half.stage = Half::Stage::done;
  if (state == kRefused) {
    const Envelope own{at_.rank(), half.tag, transfer.call.dtype, half.bytes};
    transfer.failure =
        std::make_unique<Error>(disagreement(own, half.peer, offer.wanted).about_rank(at_.shown(half.peer)));
  }
  return true;
}

// After a failure. Waits for a reader in this process, which ends in bounded time. A reader in another process does no
// harm.
void Mailbox::withdraw(Half& half) noexcept {
  if (half.stage != Half::Stage::offered) return;
  half.stage = Half::Stage::done;
  ChannelOffer& offer = at_.arena().channel(at_.rank(), half.peer).offer[half.offer];
  if (answer(offer, kWithdrawn) || at_.member(half.peer).process != at_.member(at_.rank()).process) return;
  while (offer.state.load(std::memory_order_acquire) < kTaken) sched_yield();
}

// Cancels a send that no receive has matched, and returns whether it did. Later sends move up.
bool Mailbox::cancel_send(Half& half) {
  if (half.stage == Half::Stage::done) return false;
  Peer& other = peer(half.peer);
  if (half.announced) {
    if (!answer(at_.arena().channel(at_.rank(), half.peer).offer[half.offer], kCancelled)) return false;
    other.left_behind |= 1u << half.offer;
    if (other.send_turn == half.turn) ++other.send_turn;
  } else {
    --other.send_turns;
    for (Transfer* behind : transfers_)
      if (behind->out.stage != Half::Stage::done && behind->out.peer == half.peer && behind->out.turn > half.turn)
        --behind->out.turn;
  }
  half.stage = Half::Stage::done;
  return true;
}

}  // namespace gsel::shm
