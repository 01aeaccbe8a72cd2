// comm/shm/message/channel.cc: messages between two ranks. Each ordered pair of ranks has a ring buffer of lines with
// one writer and one reader. A message of up to 48 bytes is in one line. A message of up to the size of a slot is a
// line and the slot of its number. A longer message is offered: its line says where the data is, the receiver copies it
// from there and says so, and until then the sender does not return. If the receiver cannot access that memory, the
// message is sent in as many slots as it needs.
//
// Lines are taken in the order written, messages by the receive that asks for them. A message that no receive has asked
// for is set aside, so that messages behind it can be taken.
#include "comm/shm/message/channel.h"

#include "comm/describe.h"
#include "comm/shm/link.h"

namespace gsel::shm {

// Pages for what this rank touches of its channels with another, when first needed.
void Link::reserve_channels(int32_t rank, bool slots) {
  Peer& other = peer(rank);
  const SharedMemory& memory = *family_->memory();
  const auto reserve = [&](const void* place, uint64_t bytes) {
    memory.reserve(memory.position(place), bytes, "messages");
  };
  try {
    reserve(&arena_->channel(rank_, rank), sizeof(Channel));
    reserve(&arena_->channel(rank, rank_), sizeof(Channel));
    other.lines_reserved = true;
    if (slots) reserve(arena_->slot(rank_, rank, 0), kChannelSlots * arena_->layout().slot_bytes);
    other.slots_reserved = slots;
  } catch (const Error& e) {
    break_link(e.code(), rank_, fmt::format("{}: {}", named(rank_), e.what()));
  }
}

void Link::reserve_lines_with_all() {
  if (all_lines_reserved_) return;
  for (int32_t q = 0; q < world_size_; ++q)
    if (q != rank_) need_channels(q, false);
  all_lines_reserved_ = true;
}

inline void Link::begin_send(Transfer& transfer) {
  const Call& call = transfer.call;
  Half& half = transfer.out;
  half.stage = Half::Stage::moving;
  half.peer = call.root;
  half.tag = static_cast<int32_t>(call.detail);
  half.bytes = half.stream.bytes = call.count * call.element;
  need_channels(half.peer, half.bytes > kLineBytes);
  half.turn = peer(half.peer).send_turns++;
}

inline void Link::begin_receive(Transfer& transfer, const gsel_collective& given) {
  const Call& call = transfer.call;
  const bool both = call.kind == GSEL_COLLECTIVE_SENDRECV;
  Half& half = transfer.in;
  half.stage = Half::Stage::moving;
  half.peer = both ? call.source : call.root;
  half.tag = both ? given.recv_tag : given.tag;
  half.bytes = (both ? call.recv_count : call.count) * call.element;
  transfer.received = given.received;
  if (half.peer == GSEL_ANY_RANK)
    reserve_lines_with_all();
  else
    need_channels(half.peer, false);
}

void Link::begin(Transfer& transfer, const gsel_collective& given) {
  throw_if_broken();
  complete(given, world_size_, timeout_ns_.load(), transfer.call);
  const Call& call = transfer.call;
  if (!receives_message(call.kind) || call.kind == GSEL_COLLECTIVE_SENDRECV) begin_send(transfer);
  if (receives_message(call.kind)) begin_receive(transfer, given);
  // Whoever looks again and again would leave nothing else in the recorder.
  if (call.kind == GSEL_COLLECTIVE_IPROBE) return;
  transfer.number = transfer.out.number = transfer.in.number = enter(call);
  hit(Step::enter, transfer.number);
}

bool Link::advance(Transfer& transfer) {
  const bool sent = transfer.out.stage == Half::Stage::done || advance_send(transfer);
  const bool received = transfer.in.stage == Half::Stage::done || advance_receive(transfer);
  return sent && received;
}

}  // namespace gsel::shm
