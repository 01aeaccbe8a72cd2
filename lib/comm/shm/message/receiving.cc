// comm/shm/message/receiving.cc: receives messages. The sender's description of the message is compared with the
// receive before anything is written. If they disagree and the sender still waits for the answer, only these two calls
// fail; otherwise the sender may have returned already, and the communicator breaks.
#include <algorithm>
#include <cstring>

#include "base/options.h"
#include "base/types.h"
#include "comm/call/collective.h"
#include "comm/shm/message/channel.h"
#include "comm/shm/message/mailbox.h"

namespace gsel::shm {

bool Mailbox::advance_receive(Transfer& transfer) {
  Half& half = transfer.in;
  if (half.stage == Half::Stage::moving && set_aside_.empty() && half.peer >= 0 && !row_of(transfer.call.kind).probes) {
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

// Fast path: a whole message of the expected type, length and tag, with nothing else under way. Matching gives the
// same.
bool Mailbox::take_plain(Transfer& transfer, ChannelLine& line) {
  Half& half = transfer.in;
  const bool alone = transfers_.empty() || (transfers_.size() == 1 && transfers_.front() == &transfer);
  const uint64_t word = word_of(transfer.call.dtype, half.bytes, half.tag);
  if (!alone || line.word != word || transfer.received || peer(half.peer).stream) return false;
  const char* from = reinterpret_cast<const char*>(line.payload);
  if (!in_line(word)) {
    const Route& route = route_of(line);
    if (route.way != Way::slot || route.bytes != half.bytes || half.bytes > at_.arena().layout().slot_bytes)
      return false;
    from = at_.arena().slot(half.peer, at_.rank(), peer(half.peer).received);
  }
  std::memcpy(transfer.call.recv, from, half.bytes);
  take_line(half.peer, transfer.number);
  half.stage = Half::Stage::done;
  return true;
}

// The first line of the next message from a rank; nullptr: none yet. Delivers the chunks before that line, and discards
// those of a cancelled message. If a message ends before its last chunk, it was cancelled after it was set aside.
ChannelLine* Mailbox::next_message(int32_t source, uint64_t number) {
  Peer& other = peer(source);
  for (;;) {
    ChannelLine* const line = next_line_from(source);
    const bool goes_on = line && !in_line(line->word) && route_of(*line).way == Way::chunk;
    if (!goes_on) {
      if (line && other.stream) drop_cancelled(source);
      return line;
    }
    if (other.stream)
      take_chunk(source, number);
    else
      take_line(source, number);
  }
}

// Takes the next line, a chunk of the message that arrives.
void Mailbox::take_chunk(int32_t source, uint64_t number) {
  Peer& other = peer(source);
  Stream& stream = *other.stream;
  const uint64_t some = std::min<uint64_t>(at_.arena().layout().slot_bytes, stream.bytes - stream.moved);
  std::memcpy(stream.to + stream.moved, at_.arena().slot(source, at_.rank(), other.received), some);
  stream.moved += some;
  if (stream.whole()) {
    other.stream = nullptr;
    if (stream.offer != kNoOffer)
      at_.arena().channel(source, at_.rank()).offer[stream.offer].state.store(kTaken, std::memory_order_release);
  }
  take_line(source, number);
}

// Whether the sender has cancelled the message; if so, confirms that to the sender.
bool Mailbox::is_cancelled(int32_t source, uint32_t place) {
  if (place == kNoOffer) return false;
  ChannelOffer& offer = at_.arena().channel(source, at_.rank()).offer[place];
  if (offer.state.load(std::memory_order_acquire) != kCancelled) return false;
  signals_.notify(source, offer.state, kTaken);
  return true;
}

// Sets the state of the offer for the sender; false: the message was cancelled before.
bool Mailbox::settle(int32_t source, uint32_t place, Offer what) {
  if (place == kNoOffer || answer(at_.arena().channel(source, at_.rank()).offer[place], what)) return true;
  if (!is_cancelled(source, place)) throw_withdrawn(source);
  return false;
}

// Receives a message from memory (`here`) or by a route; false: the message was cancelled before.
bool Mailbox::accept(Transfer& transfer, const Envelope& envelope, const char* here, const Route* route) {
  Half& half = transfer.in;
  const bool probe = row_of(transfer.call.kind).probes;
  const bool in_chunks = route && (route->way == Way::slot || !reads(envelope.source, *route));
  if (!probe && (envelope.dtype != transfer.call.dtype || envelope.bytes > half.bytes)) {
    if (!refuse(transfer, envelope, route)) return false;
    half.stage = Half::Stage::done;
    return true;
  }
  if (!probe && route &&
      !settle(envelope.source, route->offer, in_chunks && route->way != Way::slot ? kDeclined : kClaimed))
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
  if (!in_chunks) {
    fetch(envelope.source, *route, half.stream, transfer.call, transfer.number);
  } else {
    peer(envelope.source).stream = &half.stream;
    if (route->way != Way::slot) signals_.wake_listener_of(envelope.source);
  }
  return true;
}

void Mailbox::throw_withdrawn(int32_t source) const {
  breaking_.throw_if_broken();
  throw Error(GSEL_ERR_PEER,
              fmt::format("{} withdrew its message to {}, since its call failed; make both calls again once the cause "
                          "is gone",
                          at_.named(source), at_.named(at_.rank())))
      .about_rank(at_.shown(source));
}

// Copies a claimed offer.
void Mailbox::fetch(int32_t source, const Route& route, Stream& stream, const Call& call, uint64_t number) {
  ChannelOffer& offer = at_.arena().channel(source, at_.rank()).offer[route.offer];
  if (route.way == Way::remote)
    memory_.read_from(source, route.place, stream.to, stream.bytes, call, number);
  else
    std::memcpy(stream.to,
                route.way == Way::pointer ? reinterpret_cast<const char*>(route.place) : memory_.shared(route.place),
                stream.bytes);
  if (route.way != Way::pointer) memory_.throw_if_taken_back();  // a sender that gave up may have changed the data
  stream.moved = stream.bytes;
  signals_.notify(source, offer.state, kTaken);
  ++moves_;
}

bool Mailbox::reads_memory_of(int32_t rank) {
  Peer::Reading& reading = peer(rank).we_read;
  if (reading == Peer::Reading::open) reading = memory_.can_read(rank) ? Peer::Reading::yes : Peer::Reading::no;
  return reading == Peer::Reading::yes;
}

// The receive has another type or is too short. Fails both calls if the sender waits; false: the sender has cancelled.
bool Mailbox::refuse(Transfer& transfer, const Envelope& envelope, const Route* route) {
  const Half& half = transfer.in;
  const Call& call = transfer.call;
  const bool both = call.kind == GSEL_COLLECTIVE_SENDRECV;
  const uint64_t wanted = static_cast<uint64_t>(call.dtype) << 56 | half.bytes / call.element |
                          ((both ? call.source : call.root) == GSEL_ANY_RANK ? kWantedAnyRank : 0) |
                          (half.tag == GSEL_ANY_TAG ? kWantedAnyTag : 0);
  const Error error = disagreement(envelope, at_.rank(), wanted).about_rank(at_.shown(envelope.source));
  const bool is_sent = !route || route->way == Way::slot;  // the send may have returned
  if (is_sent) breaking_.break_with(error.code(), envelope.source, error.what());
  ChannelOffer& offer = at_.arena().channel(envelope.source, at_.rank()).offer[route->offer];
  if (offer.state.load(std::memory_order_relaxed) == kInChunks)
    breaking_.break_with(error.code(), envelope.source, error.what());
  offer.wanted = wanted;
  if (!settle(envelope.source, route->offer, kRefused)) return false;
  signals_.wake_listener_of(envelope.source);
  ++moves_;
  transfer.failure = std::make_unique<Error>(error);
  return true;
}

Error Mailbox::disagreement(const Envelope& sent, int32_t reader, uint64_t wanted) const {
  const auto type = static_cast<gsel_dtype>(wanted >> 56);
  return Error(GSEL_ERR_MISMATCH,
               fmt::format("{} called {}, {} called {}; use one type, and a receive as long as the message or longer",
                           at_.named(sent.source),
                           describe(GSEL_COLLECTIVE_SEND, sent.dtype, 0, at_.shown(reader),
                                    sent.bytes / dtype_bytes(sent.dtype), {}, sent.tag),
                           at_.named(reader),
                           describe(GSEL_COLLECTIVE_RECV, type, 0,
                                    wanted & kWantedAnyRank ? GSEL_ANY_RANK : at_.shown(sent.source),
                                    wanted & kWantedCount, {}, wanted & kWantedAnyTag ? GSEL_ANY_TAG : sent.tag)));
}

}  // namespace gsel::shm
