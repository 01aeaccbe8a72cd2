// comm/shm/message/matching.cc: which message a receive gets. A message goes to the first posted receive that matches
// its sender and tag. Messages of one pair are examined in the order sent, so no matching message is overtaken. A
// message that matches no receive is set aside when a receive may match one behind it: an offer (a long message) stays
// with its sender, which learns that it was seen; other messages are copied here, up to a limit. A receive takes what
// was set aside at once, also while its pieces still arrive; the rest goes to the receive's own buffer. Does not know
// how bytes travel.
#include <algorithm>
#include <cstring>
#include <new>

#include "comm/describe.h"
#include "comm/shm/link.h"
#include "comm/shm/message/channel.h"

namespace gsel::shm {
namespace {

constexpr uint64_t kMostKept = uint64_t{64} << 20;  // bytes; one message may be larger
constexpr uint32_t kMostSeen = kChannelOffers / 2;  // offers of a pair that stay with their sender

bool wants(const Transfer& transfer, const Envelope& envelope) {
  const Half& half = transfer.in;
  return half.stage == Half::Stage::moving && (half.peer == envelope.source || half.peer == GSEL_ANY_RANK) &&
         (half.tag == envelope.tag || (half.tag == GSEL_ANY_TAG && envelope.tag >= 0));  // below: the library's own
}

uint64_t kept_bytes(const SetAside& kept) {
  return kept.offered ? 0 : sizeof kept + kept.envelope.bytes;
}

}  // namespace

// Whether there was one. What is set aside suits no receive that was there, so a receive looks at it once.
bool Link::match(Transfer& transfer) {
  Half& half = transfer.in;
  if (!half.looked && !set_aside_.empty() && match_kept(transfer)) return true;
  if (half.peer != GSEL_ANY_RANK) return match_from(half.peer, transfer);
  for (int32_t i = 0; i < world_size_; ++i) {
    const int32_t source = (next_source_ + i) % world_size_;
    if (source == rank_ || !match_from(source, transfer)) continue;
    next_source_ = (source + 1) % world_size_;
    return true;
  }
  return false;
}

bool Link::match_from(int32_t source, Transfer& transfer) {
  while (ChannelLine* line = next_message(source, transfer.number)) {
    const Envelope envelope = envelope_of(source, *line);
    const Transfer* owner = owner_of(envelope, transfer);
    if (owner == &transfer) {
      take(transfer, envelope, *line);
      return true;
    }
    if (owner || !set_aside(envelope, *line, transfer)) return false;
  }
  return false;
}

// A probe leaves the message where it is.
void Link::take(Transfer& transfer, const Envelope& envelope, ChannelLine& line) {
  if (is_probe(transfer.call.kind)) return accept(transfer, envelope, nullptr, nullptr);
  if (in_line(line.word)) {
    accept(transfer, envelope, reinterpret_cast<const char*>(line.payload), nullptr);
    return take_line(envelope.source, transfer.number);
  }
  const Route route = route_of(line);
  if (route.way != Way::slot) take_line(envelope.source, transfer.number);
  accept(transfer, envelope, nullptr, &route);
}

// The receive posted first; where none wants it, a probe. The asking one may stand alone, not among the others yet.
const Transfer* Link::owner_of(const Envelope& envelope, const Transfer& asking) const {
  const Transfer* probe = wants(asking, envelope) ? &asking : nullptr;
  if (transfers_.empty()) return probe;
  for (const Transfer* other : transfers_) {
    if (!wants(*other, envelope)) continue;
    if (!is_probe(other->call.kind)) return other;
    if (!probe) probe = other;
  }
  return probe;
}

// Whether there was room for it.
bool Link::set_aside(const Envelope& envelope, ChannelLine& line, const Transfer& asking) {
  SetAside kept;
  kept.envelope = envelope;
  if (!in_line(line.word)) kept.route = route_of(line);
  const int32_t source = envelope.source;
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
  keep(set_aside_.back(), line, asking);
  return true;
}

void Link::keep(SetAside& kept, ChannelLine& line, const Transfer& asking) {
  const int32_t source = kept.envelope.source;
  kept.stream = {kept.data.get(), kept.envelope.bytes, 0};
  if (in_line(line.word)) {
    std::memcpy(kept.stream.to, line.payload, kept.stream.bytes);
    kept.stream.moved = kept.stream.bytes;
    return take_line(source, asking.number);
  }
  if (kept.route.way == Way::slot) {
    peer(source).stream = &kept.stream;
    return;
  }
  take_line(source, asking.number);
  if (!kept.offered) return fetch(source, kept.route, kept.stream, asking.call, asking.number);
  if (!answer(arena_->channel(source, rank_).offer[kept.route.offer], kSeen)) throw_withdrawn(source);
  call_up(source);
  ++peer(source).set_aside;
}

bool Link::match_kept(Transfer& transfer) {
  const auto found =
      std::ranges::find_if(set_aside_, [&](const SetAside& kept) { return wants(transfer, kept.envelope); });
  if (found == set_aside_.end()) {
    transfer.in.looked = true;
    return false;
  }
  if (is_probe(transfer.call.kind)) {
    accept(transfer, found->envelope, nullptr, nullptr);
    return true;
  }
  take_kept(transfer, found);
  return true;
}

void Link::take_kept(Transfer& transfer, std::list<SetAside>::iterator place) {
  const int32_t source = place->envelope.source;
  if (place->offered) {
    const SetAside kept = std::move(*place);
    set_aside_.erase(place);
    --peer(source).set_aside;
    return accept(transfer, kept.envelope, nullptr, &kept.route);
  }
  const SetAside& kept = *place;  // stays until the receive has it: pieces are still written here
  if (kept.stream.whole()) {
    accept(transfer, kept.envelope, kept.data.get(), nullptr);
  } else {
    constexpr Route in_pieces{Way::slot, 0, 0, 0};
    accept(transfer, kept.envelope, nullptr, &in_pieces);
    std::memcpy(transfer.call.recv, kept.data.get(), kept.stream.moved);
    transfer.in.stream.moved = kept.stream.moved;
  }
  kept_bytes_ -= kept_bytes(kept);
  set_aside_.erase(place);
}

// With the arena they stand in.
void Link::forget_messages() noexcept {
  set_aside_.clear();
  kept_bytes_ = 0;
  all_lines_reserved_ = false;
  std::ranges::fill(peers_, Peer{});
}

}  // namespace gsel::shm
