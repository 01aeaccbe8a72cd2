// comm/shm/message/receiving.cc: a message that is received. The sender's description of the message is compared with
// the receive before anything is written. If they disagree and the sender still waits for the answer, only these two
// calls fail; otherwise the sender may have returned already, and the communicator breaks.
#include <algorithm>
#include <cstring>

#include "base/options.h"
#include "comm/describe.h"
#include "comm/shm/link.h"
#include "comm/shm/message/channel.h"

namespace gsel::shm {

bool Link::advance_receive(Transfer& transfer) {
  Half& half = transfer.in;
  if (half.stage == Half::Stage::moving && set_aside_.empty() && half.peer >= 0 && !is_probe(transfer.call.kind)) {
    ChannelLine* const line = next_line_from(half.peer);
    if (!line) return false;
    if (take_plain(transfer, *line)) return true;
  }
  if (half.stage == Half::Stage::moving && !match(transfer)) {
    if (transfer.call.kind != GSEL_COLLECTIVE_IPROBE) return false;
    transfer.received->source = GSEL_ANY_RANK;
    half.stage = Half::Stage::done;
  }
  if (half.stage == Half::Stage::arriving) {
    if (!half.stream.whole()) next_message(half.peer, transfer.number);
    if (!half.stream.whole()) return false;
    half.stage = Half::Stage::done;
  }
  return true;
}

// The usual message, which matching would give this receive too: it is whole, and nothing else is under way.
bool Link::take_plain(Transfer& transfer, ChannelLine& line) {
  Half& half = transfer.in;
  const bool alone = transfers_.empty() || (transfers_.size() == 1 && transfers_.front() == &transfer);
  const uint64_t word = word_of(transfer.call.dtype, half.bytes, half.tag);
  if (!alone || line.word != word || transfer.received || peer(half.peer).stream) return false;
  const char* from = reinterpret_cast<const char*>(line.payload);
  if (!in_line(word)) {
    const Route& route = route_of(line);
    if (route.way != Way::slot || route.bytes != half.bytes || half.bytes > arena_->layout().slot_bytes) return false;
    from = arena_->slot(half.peer, rank_, peer(half.peer).received);
  }
  std::memcpy(transfer.call.recv, from, half.bytes);
  take_line(half.peer, transfer.number);
  half.stage = Half::Stage::done;
  return true;
}

// The line with which the next message from a rank begins; nullptr: none yet. Pieces before it go where they belong.
// Those of a message that was cancelled belong nowhere, and when it ends in the middle, it was one that is set aside.
ChannelLine* Link::next_message(int32_t source, uint64_t number) {
  Peer& other = peer(source);
  for (;;) {
    ChannelLine* const line = next_line_from(source);
    const bool goes_on = line && !in_line(line->word) && route_of(*line).way == Way::piece;
    if (!goes_on) {
      if (line && other.stream) drop_cancelled(source);
      return line;
    }
    if (other.stream)
      take_piece(source, number);
    else
      take_line(source, number);
  }
}

// The next line, of the message that is arriving.
void Link::take_piece(int32_t source, uint64_t number) {
  Peer& other = peer(source);
  Stream& stream = *other.stream;
  const uint64_t some = std::min<uint64_t>(arena_->layout().slot_bytes, stream.bytes - stream.moved);
  std::memcpy(stream.to + stream.moved, arena_->slot(source, rank_, other.received), some);
  stream.moved += some;
  if (stream.whole()) {
    other.stream = nullptr;
    if (stream.offer != kNoOffer)
      arena_->channel(source, rank_).offer[stream.offer].state.store(kTaken, std::memory_order_release);
  }
  take_line(source, number);
}

// Whether its sender has cancelled the message; then it hears that we know.
bool Link::is_cancelled(int32_t source, uint32_t place) {
  if (place == kNoOffer) return false;
  ChannelOffer& offer = arena_->channel(source, rank_).offer[place];
  if (offer.state.load(std::memory_order_acquire) != kCancelled) return false;
  notify(source, offer.state, kTaken);
  return true;
}

// Tells the sender what becomes of the message; false: it was cancelled before.
bool Link::settle(int32_t source, uint32_t place, Offer what) {
  if (place == kNoOffer || answer(arena_->channel(source, rank_).offer[place], what)) return true;
  if (!is_cancelled(source, place)) throw_withdrawn(source);
  return false;
}

// A message that is `here`, or by a route; false: it was cancelled before.
bool Link::accept(Transfer& transfer, const Envelope& envelope, const char* here, const Route* route) {
  Half& half = transfer.in;
  const bool probe = is_probe(transfer.call.kind);
  const bool in_pieces = route && (route->way == Way::slot || !reads(envelope.source, *route));
  if (!probe && (envelope.dtype != transfer.call.dtype || envelope.bytes > half.bytes)) {
    if (!refuse(transfer, envelope, route)) return false;
    half.stage = Half::Stage::done;
    return true;
  }
  if (!probe && route &&
      !settle(envelope.source, route->offer, in_pieces && route->way != Way::slot ? kDeclined : kClaimed))
    return false;
  half.peer = envelope.source;
  half.stage = Half::Stage::done;
  if (transfer.received)
    write_struct(
        transfer.received,
        gsel_message{0, envelope.source, envelope.tag, envelope.dtype, envelope.bytes / dtype_bytes(envelope.dtype)},
        "gsel_message");
  if (probe) return true;
  if (here) {
    std::memcpy(transfer.call.recv, here, envelope.bytes);
    return true;
  }
  half.stage = Half::Stage::arriving;
  half.stream = {transfer.call.recv, envelope.bytes, 0, route->offer};
  if (!in_pieces) {
    fetch(envelope.source, *route, half.stream, transfer.call, transfer.number);
  } else {
    peer(envelope.source).stream = &half.stream;
    if (route->way != Way::slot) call_up(envelope.source);
  }
  return true;
}

void Link::throw_withdrawn(int32_t source) const {
  throw_if_broken();
  throw Error(
      GSEL_ERR_PEER,
      fmt::format("{} took back what it sent to {}, since its call failed; make both calls again once the cause "
                  "is gone",
                  named(source), named(rank_)))
      .about_rank(shown(source));
}

// What is on offer and claimed.
void Link::fetch(int32_t source, const Route& route, Stream& stream, const Call& call, uint64_t number) {
  ChannelOffer& offer = arena_->channel(source, rank_).offer[route.offer];
  if (route.way == Way::remote)
    read_from(source, route.place, stream.to, stream.bytes, call, number);
  else
    std::memcpy(stream.to, route.way == Way::pointer ? reinterpret_cast<const char*>(route.place) : shared(route.place),
                stream.bytes);
  if (route.way != Way::pointer) throw_if_taken_back();  // a sender that gave up may have changed it meanwhile
  stream.moved = stream.bytes;
  notify(source, offer.state, kTaken);
  ++moves_;
}

bool Link::reads_memory_of(int32_t rank) {
  Peer::Reading& reading = peer(rank).we_read;
  if (reading == Peer::Reading::open) reading = can_read(rank) ? Peer::Reading::yes : Peer::Reading::no;
  return reading == Peer::Reading::yes;
}

// The receive is for another type, or too short. Where the sender waits, both calls fail; false: it has cancelled its.
bool Link::refuse(Transfer& transfer, const Envelope& envelope, const Route* route) {
  const Half& half = transfer.in;
  const Call& call = transfer.call;
  const bool both = call.kind == GSEL_COLLECTIVE_SENDRECV;
  const uint64_t wanted = static_cast<uint64_t>(call.dtype) << 56 | half.bytes / call.element |
                          ((both ? call.source : call.root) == GSEL_ANY_RANK ? kWantedAnyRank : 0) |
                          (half.tag == GSEL_ANY_TAG ? kWantedAnyTag : 0);
  const Error error = disagreement(envelope, rank_, wanted).about_rank(shown(envelope.source));
  const bool is_sent = !route || route->way == Way::slot;  // or a part of it may be
  if (is_sent) break_link(error.code(), envelope.source, error.what());
  ChannelOffer& offer = arena_->channel(envelope.source, rank_).offer[route->offer];
  if (offer.state.load(std::memory_order_relaxed) == kPieces) break_link(error.code(), envelope.source, error.what());
  offer.wanted = wanted;
  if (!settle(envelope.source, route->offer, kRefused)) return false;
  call_up(envelope.source);
  ++moves_;
  transfer.failure = std::make_unique<Error>(error);
  return true;
}

Error Link::disagreement(const Envelope& sent, int32_t reader, uint64_t wanted) const {
  const auto type = static_cast<gsel_dtype>(wanted >> 56);
  return Error(
      GSEL_ERR_MISMATCH,
      fmt::format("{} called {}, {} called {}; use one type, and a receive as long as the message or longer",
                  named(sent.source),
                  describe(GSEL_COLLECTIVE_SEND, sent.dtype, 0, shown(reader), sent.bytes / dtype_bytes(sent.dtype), {},
                           sent.tag),
                  named(reader),
                  describe(GSEL_COLLECTIVE_RECV, type, 0, wanted & kWantedAnyRank ? GSEL_ANY_RANK : shown(sent.source),
                           wanted & kWantedCount, {}, wanted & kWantedAnyTag ? GSEL_ANY_TAG : sent.tag)));
}

}  // namespace gsel::shm
