// comm/shm/message/matching.cc: which message a receive gets. A message goes to the first posted receive that matches
// its sender and tag. Messages of one pair are examined in the order sent, so no matching message is overtaken. A
// message that matches no receive is set aside when a receive may match a later message: an offer (a long message)
// stays with its sender, which sees the state kSeen; other messages are copied here, up to a limit. A receive can take
// a message that was set aside while chunks still arrive; the later chunks go to the receive's own buffer. A message
// that its sender has cancelled is dropped when it is found. Does not know how bytes travel.
#include <algorithm>
#include <cstring>
#include <iterator>
#include <new>

#include "comm/call/collective.h"
#include "comm/shm/message/channel.h"
#include "comm/shm/message/mailbox.h"

namespace gsel::shm {
namespace {

constexpr uint64_t kMostKept = uint64_t{64} << 20;  // bytes; one message may be larger
constexpr uint32_t kMostSeen = kChannelOffers / 2;  // offers of a pair that stay with their sender

bool wants(const Transfer& transfer, const Envelope& envelope) {
  const Half& half = transfer.in;
  return half.stage == Half::Stage::moving && (half.peer == envelope.source || half.peer == GSEL_ANY_RANK) &&
         (half.tag == envelope.tag || (half.tag == GSEL_ANY_TAG && envelope.tag >= 0));  // < 0: internal messages
}

uint64_t kept_bytes(const SetAside& kept) {
  return kept.offered ? 0 : sizeof kept + kept.envelope.bytes;
}

}  // namespace

// Whether the transfer was matched. A message that is set aside matches no receive posted before it, so each receive
// checks the messages set aside only once.
bool Mailbox::match(Transfer& transfer) {
  Half& half = transfer.in;
  if (!half.looked && !set_aside_.empty() && match_kept(transfer)) return true;
  if (half.peer != GSEL_ANY_RANK) return match_from(half.peer, transfer);
  for (int32_t i = 0; i < at_.world_size(); ++i) {
    const int32_t source = (next_source_ + i) % at_.world_size();
    if (source == at_.rank() || !match_from(source, transfer)) continue;
    next_source_ = (source + 1) % at_.world_size();
    return true;
  }
  return false;
}

bool Mailbox::match_from(int32_t source, Transfer& transfer) {
  while (ChannelLine* line = next_message(source, transfer.number)) {
    if (!in_line(line->word) && is_cancelled(source, route_of(*line).offer)) {
      take_line(source, transfer.number);
      continue;
    }
    const Envelope envelope = envelope_of(source, *line);
    const Transfer* owner = owner_of(envelope, transfer);
    if (owner == &transfer && take(transfer, envelope, *line)) return true;
    if (owner == &transfer) continue;
    if (owner || !set_aside(envelope, *line, transfer)) return false;
  }
  return false;
}

// A probe leaves the message in place. false: the message was cancelled meanwhile.
bool Mailbox::take(Transfer& transfer, const Envelope& envelope, ChannelLine& line) {
  if (row_of(transfer.call.kind).probes) return accept(transfer, envelope, nullptr, nullptr);
  if (in_line(line.word)) {
    accept(transfer, envelope, reinterpret_cast<const char*>(line.payload), nullptr);
    take_line(envelope.source, transfer.number);
    return true;
  }
  const Route route = route_of(line);
  if (route.way != Way::slot) {
    take_line(envelope.source, transfer.number);
    return accept(transfer, envelope, nullptr, &route);
  }
  const bool accepted = accept(transfer, envelope, nullptr, &route);
  if (accepted)
    take_chunk(envelope.source, transfer.number);
  else
    take_line(envelope.source, transfer.number);
  return accepted;
}

// The first posted receive that matches, else a probe. `asking` may not be in transfers_ yet.
const Transfer* Mailbox::owner_of(const Envelope& envelope, const Transfer& asking) const {
  const Transfer* probe = wants(asking, envelope) ? &asking : nullptr;
  if (transfers_.empty()) return probe;
  for (const Transfer* other : transfers_) {
    if (!wants(*other, envelope)) continue;
    if (!row_of(other->call.kind).probes) return other;
    if (!probe) probe = other;
  }
  return probe;
}

// false: the limit is reached or there is no memory.
bool Mailbox::set_aside(const Envelope& envelope, ChannelLine& line, const Transfer& asking) {
  const int32_t source = envelope.source;
  if (peer(source).set_aside == kMostSeen) drop_cancelled(source);
  SetAside kept;
  kept.envelope = envelope;
  if (!in_line(line.word)) kept.route = route_of(line);
  const bool on_offer = !in_line(line.word) && kept.route.way != Way::slot;
  kept.offered =
      on_offer && peer(source).set_aside < kMostSeen && (kept.route.way != Way::remote || reads_memory_of(source));
  if (kept_bytes_ > 0 && kept_bytes_ + kept_bytes(kept) > kMostKept) return false;
  try {
    if (!kept.offered) kept.data = std::make_unique_for_overwrite<char[]>(envelope.bytes);
    set_aside_.push_back(std::move(kept));
  } catch (const std::bad_alloc&) {
    return false;
  }
  kept_bytes_ += kept_bytes(set_aside_.back());
  const auto place = std::prev(set_aside_.end());
  try {
    if (!keep(*place, line, asking)) drop(place);
  } catch (...) {
    drop(place);
    throw;
  }
  return true;
}

// false: the message was cancelled meanwhile.
bool Mailbox::keep(SetAside& kept, ChannelLine& line, const Transfer& asking) {
  const int32_t source = kept.envelope.source;
  kept.stream = {kept.data.get(), kept.envelope.bytes, 0, kept.route.offer};
  if (in_line(line.word)) {
    std::memcpy(kept.stream.to, line.payload, kept.stream.bytes);
    kept.stream.moved = kept.stream.bytes;
    take_line(source, asking.number);
    return true;
  }
  if (kept.route.way == Way::slot) {
    const bool settled = settle(source, kept.route.offer, kSeen);
    if (settled) peer(source).stream = &kept.stream;
    if (settled)
      take_chunk(source, asking.number);
    else
      take_line(source, asking.number);
    return settled;
  }
  take_line(source, asking.number);
  if (kept.offered) ++peer(source).set_aside;
  const bool in_chunks = !reads(source, kept.route);
  if (!settle(source, kept.route.offer, kept.offered ? kSeen : in_chunks ? kInChunks : kClaimed)) return false;
  if (!kept.offered && !in_chunks) {
    fetch(source, kept.route, kept.stream, asking.call, asking.number);
  } else {
    if (in_chunks) peer(source).stream = &kept.stream;
    signals_.wake_listener_of(source);
  }
  return true;
}

bool Mailbox::match_kept(Transfer& transfer) {
  for (auto next = set_aside_.begin(); next != set_aside_.end();) {
    const auto place = next++;
    if (!wants(transfer, place->envelope)) continue;
    if (is_cancelled(*place))
      drop(place);
    else if (row_of(transfer.call.kind).probes)
      return accept(transfer, place->envelope, nullptr, nullptr);
    else if (take_kept(transfer, place))
      return true;
  }
  transfer.in.looked = true;
  return false;
}

// false: the message was cancelled meanwhile.
bool Mailbox::take_kept(Transfer& transfer, std::list<SetAside>::iterator place) {
  const SetAside& kept = *place;  // dropped only after the receive has it, since chunks are still written here
  const bool whole = !kept.offered && kept.stream.whole();
  bool accepted = false;
  try {
    accepted = accept(transfer, kept.envelope, whole ? kept.data.get() : nullptr, whole ? nullptr : &kept.route);
  } catch (...) {
    if (kept.offered) drop(place);
    throw;
  }
  if (accepted && !whole && !kept.offered) {
    std::memcpy(transfer.call.recv, kept.data.get(), kept.stream.moved);
    transfer.in.stream.moved = kept.stream.moved;
  }
  drop(place);
  return accepted;
}

bool Mailbox::is_cancelled(const SetAside& kept) {
  const bool is_over = !kept.offered && kept.stream.whole();
  return !is_over && is_cancelled(kept.envelope.source, kept.route.offer);
}

void Mailbox::drop(std::list<SetAside>::iterator place) {
  Peer& source = peer(place->envelope.source);
  if (source.stream == &place->stream) source.stream = nullptr;
  if (place->offered) --source.set_aside;
  kept_bytes_ -= kept_bytes(*place);
  set_aside_.erase(place);
}

void Mailbox::drop_cancelled(int32_t source) {
  for (auto next = set_aside_.begin(); next != set_aside_.end();) {
    const auto place = next++;
    if (place->envelope.source == source && is_cancelled(*place)) drop(place);
  }
}

// Called when the rank leaves the arena of the messages.
void Mailbox::forget() noexcept {
  set_aside_.clear();
  kept_bytes_ = 0;
  all_lines_reserved_ = false;
  std::ranges::fill(peers_, Peer{});
}

}  // namespace gsel::shm
