// comm/shm/channel.cc: messages between two ranks. Each ordered pair has a ring of lines with one writer and one
// reader. A message of up to 48 bytes is one line; up to a slot, a line and the slot of its number; a longer one is
// offered: its line says where the data stands, the receiver copies it from there and takes the line, and until then
// the sender does not return. Where the receiver cannot reach it, it travels in as many slots as it needs.
//
// Each line repeats what the message is, so the receiver finds a disagreement before it writes; the sender may have
// returned by then, hence it breaks the communicator. A sender that gives up takes its offer back first, so nobody
// copies from memory that is no longer lent.
#include <sched.h>

#include <algorithm>
#include <cstring>

#include "comm/describe.h"
#include "comm/request.h"
#include "comm/shm/link.h"

namespace gsel::shm {
static_assert(kChannelSlots >= kBufferedMessages && kChannelLines >= kBufferedMessages);
namespace {

enum class Way : uint32_t { slot, pointer, offset, remote };
enum Offer : uint32_t { kOpen, kClaimed, kDeclined, kWithdrawn };

// In the payload of a line whose data stands elsewhere.
struct Route {
  Way way;
  uint32_t offer;  // changed by both sides
  uint64_t place;  // address in the sender's process, or offset in the family's memory
};
static_assert(sizeof(Route) <= kLineBytes);

Route& route_of(ChannelLine& line) {
  return *reinterpret_cast<Route*>(line.payload);
}

uint64_t word_of(gsel_dtype dtype, uint64_t count) {
  return static_cast<uint64_t>(dtype) << 56 | count;
}

// Whether the offer was open.
bool answer(Route& route, uint32_t what) {
  uint32_t expected = kOpen;
  return std::atomic_ref(route.offer).compare_exchange_strong(expected, what, std::memory_order_seq_cst);
}

}  // namespace

// Pages for what this rank touches of its channels with another, when first needed.
void Link::reserve_channels(int32_t rank, bool slots) {
  Peer& peer = peers_[static_cast<size_t>(rank)];
  if (peer.lines_reserved && (peer.slots_reserved || !slots)) return;
  const SharedMemory& memory = *family_->memory();
  const auto reserve = [&](const void* place, uint64_t bytes) {
    memory.reserve(memory.position(place), bytes, "messages");
  };
  try {
    reserve(&arena_->channel(rank_, rank), sizeof(Channel));
    reserve(&arena_->channel(rank, rank_), sizeof(Channel));
    peer.lines_reserved = true;
    if (slots) reserve(arena_->slot(rank_, rank, 0), kChannelSlots * arena_->layout().slot_bytes);
    peer.slots_reserved = slots;
  } catch (const Error& e) {
    break_link(e.code(), rank_, fmt::format("rank {}: {}", rank_, e.what()));
  }
}

// Makes progress on a channel known to the rank at its other end; see post.
inline void Link::tell(int32_t rank, std::atomic<uint64_t>& flag, uint64_t value) {
  RankBlock& other = arena_->rank(rank);
  if (asymmetric_) {
    flag.store(value, std::memory_order_release);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (other.listening.load(std::memory_order_relaxed) != 0) ring(other);
  } else {
    flag.store(value, std::memory_order_seq_cst);
    if (other.listening.load(std::memory_order_seq_cst) != 0) ring(other);
  }
}

void Link::begin(Transfer& transfer, const gsel_collective& given) {
  throw_if_broken();
  complete(given, world_size_, timeout_ns_.load(), transfer.call);
  const Call& call = transfer.call;
  const bool both = call.kind == GSEL_COLLECTIVE_SENDRECV;
  if (call.kind != GSEL_COLLECTIVE_RECV) {
    begin(transfer.out, call, call.root, call.count);
    reserve_channels(call.root, transfer.out.bytes > kLineBytes);
    transfer.out.turn = peers_[static_cast<size_t>(call.root)].send_turns++;
  }
  if (call.kind != GSEL_COLLECTIVE_SEND) {
    begin(transfer.in, call, both ? call.source : call.root, both ? call.recv_count : call.count);
    reserve_channels(transfer.in.peer, false);
    transfer.in.turn = peers_[static_cast<size_t>(transfer.in.peer)].receive_turns++;
  }
  transfer.number = transfer.out.number = transfer.in.number = enter(call);
  hit(Step::enter, transfer.number);
}

void Link::begin(Half& half, const Call& call, int32_t peer, uint64_t count) {
  half.stage = Half::Stage::moving;
  half.peer = peer;
  half.word = word_of(call.dtype, count);
  half.bytes = count * call.element;
}

bool Link::advance(Transfer& transfer) {
  const bool sent = transfer.out.stage == Half::Stage::done || advance_send(transfer);
  const bool received = transfer.in.stage == Half::Stage::done || advance_receive(transfer);
  return sent && received;
}

bool Link::all_taken(Half& half, uint64_t lines) {
  Peer& peer = peers_[static_cast<size_t>(half.peer)];
  if (peer.taken < lines) peer.taken = arena_->channel(rank_, half.peer).taken.load(std::memory_order_acquire);
  return peer.taken >= lines;
}

bool Link::has_room(Half& half, uint64_t lines) {
  const uint64_t sent = peers_[static_cast<size_t>(half.peer)].sent;
  return sent < lines || all_taken(half, sent + 1 - lines);
}

ChannelLine& Link::next_line(const Half& half) {
  ChannelLine& line =
      arena_->channel(rank_, half.peer).line[peers_[static_cast<size_t>(half.peer)].sent % kChannelLines];
  line.word = half.word;
  return line;
}

void Link::send_line(const Half& half, ChannelLine& line) {
  tell(half.peer, line.sequence, ++peers_[static_cast<size_t>(half.peer)].sent);
  hit(Step::sent, half.number);
  ++moves_;
}

bool Link::advance_send(Transfer& transfer) {
  Half& half = transfer.out;
  Peer& peer = peers_[static_cast<size_t>(half.peer)];
  if (half.stage == Half::Stage::offered && !settle_offer(half)) return false;
  if (half.stage == Half::Stage::done) return true;
  if (peer.send_turn != half.turn) return false;
  if (half.bytes <= kLineBytes) {
    if (!has_room(half, kChannelLines)) return false;
    ChannelLine& line = next_line(half);
    std::memcpy(line.payload, transfer.call.send, half.bytes);
    send_line(half, line);
  } else if (half.bytes > arena_->layout().slot_bytes && offer(half, transfer.call.send)) {
    return false;
  } else if (!send_pieces(half, transfer.call.send)) {
    return false;
  }
  ++peer.send_turn;
  half.stage = Half::Stage::done;
  return true;
}

bool Link::send_pieces(Half& half, const char* data) {
  const uint64_t slot_bytes = arena_->layout().slot_bytes;
  while (half.moved < half.bytes) {
    if (!has_room(half, kChannelSlots)) return false;
    const uint64_t some = std::min(slot_bytes, half.bytes - half.moved);
    ChannelLine& line = next_line(half);
    route_of(line) = {Way::slot, kOpen, 0};
    std::memcpy(arena_->slot(rank_, half.peer, peers_[static_cast<size_t>(half.peer)].sent), data + half.moved, some);
    half.moved += some;
    send_line(half, line);
  }
  return true;
}

// Whether the data is on offer, or will be once there is room. Others to that rank may go on behind an offer that
// cannot be declined.
bool Link::offer(Half& half, const char* data) {
  Peer& peer = peers_[static_cast<size_t>(half.peer)];
  Route route{Way::remote, kOpen, reinterpret_cast<uintptr_t>(data)};
  if (member(half.peer).process == member(rank_).process) {
    route.way = Way::pointer;
  } else if (const uint64_t offset = family_->offset_of(data, half.bytes)) {
    route.way = Way::offset;
    route.place = offset;
  } else if (peer.reads_us == Peer::Reading::no || half.bytes < tuning_.single_copy_from) {
    return false;
  }
  if (!has_room(half, kChannelLines)) return true;
  half.line = peer.sent;
  half.stage = Half::Stage::offered;
  ChannelLine& line = next_line(half);
  route_of(line) = route;
  send_line(half, line);
  if (route.way != Way::remote || peer.reads_us == Peer::Reading::yes) ++peer.send_turn;
  return true;
}

// Whether the offer was taken or declined; what is declined travels in pieces.
bool Link::settle_offer(Half& half) {
  if (!all_taken(half, half.line + 1)) return false;
  ++moves_;
  half.stage = Half::Stage::done;
  Peer& peer = peers_[static_cast<size_t>(half.peer)];
  if (peer.send_turn != half.turn) return true;  // could not be declined, and its line may be another's by now
  const Route& route = route_of(arena_->channel(rank_, half.peer).line[half.line % kChannelLines]);
  peer.reads_us = route.offer == kDeclined ? Peer::Reading::no : Peer::Reading::yes;
  if (route.offer == kDeclined)
    half.stage = Half::Stage::moving;
  else
    ++peer.send_turn;
  return true;
}

// After a failure. Whoever reads the data in this process ends in bounded time; from another, it does no harm.
void Link::withdraw(Half& half) noexcept {
  if (half.stage != Half::Stage::offered) return;
  half.stage = Half::Stage::done;
  Route& route = route_of(arena_->channel(rank_, half.peer).line[half.line % kChannelLines]);
  if (all_taken(half, half.line + 1) || answer(route, kWithdrawn) || route.way != Way::pointer) return;
  while (!all_taken(half, half.line + 1)) sched_yield();
}

bool Link::advance_receive(Transfer& transfer) {
  Half& half = transfer.in;
  Peer& peer = peers_[static_cast<size_t>(half.peer)];
  if (peer.receive_turn != half.turn) return false;
  Channel& channel = arena_->channel(half.peer, rank_);
  do {
    ChannelLine& line = channel.line[peer.received % kChannelLines];
    if (line.sequence.load(std::memory_order_acquire) <= peer.received) return false;
    if (line.word != half.word) fail_message(line.word, transfer);
    if (half.bytes <= kLineBytes)
      std::memcpy(transfer.call.recv, line.payload, half.bytes), half.moved = half.bytes;
    else
      fetch(transfer, line);
    tell(half.peer, channel.taken, ++peer.received);
    hit(Step::taken, half.number);
    ++moves_;
  } while (half.moved < half.bytes);
  ++peer.receive_turn;
  half.stage = Half::Stage::done;
  return true;
}

void Link::fetch(Transfer& transfer, ChannelLine& line) {
  Half& half = transfer.in;
  char* out = transfer.call.recv;
  Route& route = route_of(line);
  if (route.way == Way::slot) {
    const uint64_t some = std::min<uint64_t>(arena_->layout().slot_bytes, half.bytes - half.moved);
    std::memcpy(out + half.moved, arena_->slot(half.peer, rank_, peers_[static_cast<size_t>(half.peer)].received),
                some);
    half.moved += some;
    return;
  }
  const bool reads = route.way != Way::remote || reads_memory_of(half.peer);
  if (!answer(route, reads ? kClaimed : kDeclined)) throw_broken();  // withdrawn
  if (!reads) return;
  if (route.way == Way::remote)
    read_from(half.peer, route.place, out, half.bytes, transfer.call, transfer.number);
  else
    std::memcpy(out, route.way == Way::pointer ? reinterpret_cast<const char*>(route.place) : shared(route.place),
                half.bytes);
  if (route.way != Way::pointer) throw_if_taken_back();  // a sender that gave up may have changed it meanwhile
  half.moved = half.bytes;
}

bool Link::reads_memory_of(int32_t rank) {
  Peer::Reading& reading = peers_[static_cast<size_t>(rank)].we_read;
  if (reading == Peer::Reading::open) reading = can_read(rank) ? Peer::Reading::yes : Peer::Reading::no;
  return reading == Peer::Reading::yes;
}

void Link::fail_message(uint64_t word, const Transfer& transfer) {
  const Half& half = transfer.in;
  const auto text = [&](gsel_collective_kind kind, uint64_t what, int32_t peer) {
    return describe(kind, static_cast<gsel_dtype>(what >> 56), 0, peer, what & ((uint64_t{1} << 56) - 1));
  };
  break_link(
      GSEL_ERR_MISMATCH, half.peer,
      fmt::format("rank {} called {}, rank {} called {}; make type and count agree", half.peer,
                  text(GSEL_COLLECTIVE_SEND, word, rank_), rank_, text(GSEL_COLLECTIVE_RECV, half.word, half.peer)));
}

}  // namespace gsel::shm
