// comm/shm/message/channel.cc: messages between two ranks. Each ordered pair of ranks has a ring buffer of lines with
// one writer and one reader. A message of up to 48 bytes is in one line. A message of up to the size of a slot is a
// line and the slot of the same number. A longer message is offered: its line has the address of the data, the receiver
// copies the data and confirms, and the sender waits for that. If the receiver cannot access that memory, the message
// is sent through as many slots as it needs.
//
// Lines are taken in the order written; each message goes to a matching receive. A message without a matching receive
// is set aside, so that later messages can be taken.
#include "comm/shm/message/channel.h"

#include "comm/call/collective.h"
#include "comm/shm/message/mailbox.h"

namespace gsel::shm {

Mailbox::Mailbox(const Membership& members, FlightRecorder& recorder, const Breaking& breaking, Signals& signals,
                 PeerMemory& memory, Faults& faults)
    : at_(members),
      recorder_(recorder),
      breaking_(breaking),
      signals_(signals),
      memory_(memory),
      faults_(faults),
      tuning_(members.tuning()),
      peers_(members.ranks()) {}

// Reserves the pages of the channels with another rank that this rank touches, when first needed.
void Mailbox::reserve_channels(int32_t rank, bool slots) {
  Peer& other = peer(rank);
  const SharedMemory& memory = *at_.family().memory();
  const auto reserve = [&](const void* place, uint64_t bytes) {
    memory.reserve(memory.position(place), bytes, "messages");
  };
  try {
    reserve(&at_.arena().channel(at_.rank(), rank), sizeof(Channel));
    reserve(&at_.arena().channel(rank, at_.rank()), sizeof(Channel));
    other.lines_reserved = true;
    if (slots) reserve(at_.arena().slot(at_.rank(), rank, 0), kChannelSlots * at_.arena().layout().slot_bytes);
    other.slots_reserved = slots;
  } catch (const Error& e) {
    breaking_.break_with(e.code(), at_.rank(), fmt::format("{}: {}", at_.named(at_.rank()), e.what()));
  }
}

void Mailbox::reserve_lines_with_all() {
  if (all_lines_reserved_) return;
  for (int32_t q = 0; q < at_.world_size(); ++q)
    if (q != at_.rank()) need_channels(q, false);
  all_lines_reserved_ = true;
}

inline void Mailbox::begin_send(Transfer& transfer) {
  const Call& call = transfer.call;
  Half& half = transfer.out;
  half.stage = Half::Stage::moving;
  half.peer = call.root;
  half.tag = static_cast<int32_t>(call.detail);
  half.bytes = half.stream.bytes = call.count * call.element;
  need_channels(half.peer, half.bytes > kLineBytes);
  half.turn = peer(half.peer).send_turns++;
}

inline void Mailbox::begin_receive(Transfer& transfer, const gsel_collective& given) {
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

void Mailbox::begin(Transfer& transfer, const gsel_collective& given) {
  breaking_.throw_if_broken();
  complete(given, at_.world_size(), signals_.timeout_ns(), transfer.call, transfer.call.grouped);
  const Call& call = transfer.call;
  if (!row_of(call.kind).receives || call.kind == GSEL_COLLECTIVE_SENDRECV) begin_send(transfer);
  if (row_of(call.kind).receives) begin_receive(transfer, given);
  // Repeated probes must not fill the recorder.
  if (call.kind == GSEL_COLLECTIVE_IPROBE) return;
  transfer.number = transfer.out.number = transfer.in.number = recorder_.enter(call);
  hit(Step::enter, transfer.number);
}

bool Mailbox::advance(Transfer& transfer) {
  const bool sent = transfer.out.stage == Half::Stage::done || advance_send(transfer);
  const bool received = transfer.in.stage == Half::Stage::done || advance_receive(transfer);
  return sent && received;
}

// For a sendrecv: the choice for the longer message.
Choice Mailbox::choose(const Call& call) {
  const bool both = call.kind == GSEL_COLLECTIVE_SENDRECV;
  const bool sends = both ? call.count >= call.recv_count : !row_of(call.kind).receives;
  const uint64_t bytes = (both ? std::max(call.count, call.recv_count) : call.count) * call.element;
  if (bytes <= kLineBytes) return {Protocol::line, "the message fits a line"};
  if (bytes <= at_.arena().layout().slot_bytes) return {Protocol::slots, "the message fits a slot"};
  switch (expected_way(call, sends, bytes)) {
    case Way::pointer:
      return {Protocol::direct, "larger than a slot, and the ranks are threads of one process"};
    case Way::offset:
      return {Protocol::direct, "larger than a slot, and in memory of gsel_mem_alloc"};
    case Way::remote:
      return {Protocol::single_copy, "not memory of gsel_mem_alloc, and large enough to be read across processes"};
    default:
      return {Protocol::staged, bytes < tuning_.single_copy_from
                                    ? "larger than a slot, and chunks suit this size"
                                    : "larger than a slot, and the receiver may not read the sender's memory"};
  }
}

// A receiver assumes that the sender's memory is of the same kind as its own.
Way Mailbox::expected_way(const Call& call, bool sends, uint64_t bytes) {
  const int32_t rank = sends || call.kind != GSEL_COLLECTIVE_SENDRECV ? call.root : call.source;
  const char* data = sends ? call.send : call.recv;
  if (rank < 0 ? at_.one_process() : at_.is_thread_here(rank)) return Way::pointer;
  if (memory_.offset_of(data, bytes) != 0) return Way::offset;
  if (bytes < tuning_.single_copy_from) return Way::slot;
  const bool reads = rank < 0 ? memory_.reads_all() : sends ? is_read_by(rank) : reads_memory_of(rank);
  return reads ? Way::remote : Way::slot;
}

// As earlier messages have shown, else as the rank found when it joined.
bool Mailbox::is_read_by(int32_t rank) {
  const Peer::Reading known = peer(rank).reads_us;
  return known == Peer::Reading::open ? memory_.is_read_by(rank) : known == Peer::Reading::yes;
}

gsel_comm_explanation Mailbox::explain(const Call& call) {
  const Choice choice = at_.world_size() == 1 ? Choice{Protocol::alone, "there is one rank"} : choose(call);
  const bool both = call.kind == GSEL_COLLECTIVE_SENDRECV;
  gsel_comm_explanation out = GSEL_COMM_EXPLANATION_INIT;
  out.protocol = protocol_name(choice.protocol);
  out.reason = choice.reason;
  if (choice.protocol == Protocol::staged) out.chunk_bytes = at_.arena().layout().slot_bytes;
  out.seconds = predicted_seconds(at_.world_size(), call.kind,
                                  (both ? std::max(call.count, call.recv_count) : call.count) * call.element);
  if (call.kind != GSEL_COLLECTIVE_RECV) out.sent_bytes = call.count * call.element;
  return out;
}

}  // namespace gsel::shm
