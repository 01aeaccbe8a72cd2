// comm/shm/collective/choose.cc: which protocol a call uses, and why. A call chooses by the header lines of all ranks,
// which describe their buffers. An explanation knows only this rank's buffers and assumes that those of all ranks are
// of the same kind.
#include <algorithm>

#include "comm/call/collective.h"
#include "comm/shm/collective/collectives.h"

namespace gsel::shm {
namespace {

// Bytes of the larger of a rank's two buffers, maximum over ranks; the size for predictions.
uint64_t size_of(const Call& call, const Plan& plan, int32_t ranks) {
  const CollectiveRow& row = row_of(call.kind);
  if (row.takes_send_counts() && row.takes_recv_counts()) {
    uint64_t sent = 0, received = 0;
    for (int32_t q = 0; q < ranks; ++q) sent += plan.source(q).count, received += plan.target(q).count;
    return std::max(sent, received);
  }
  const bool all = row.send == Reach::all || row.recv == Reach::all;
  return call.count * call.element * (all ? static_cast<uint64_t>(ranks) : 1);
}

}  // namespace

// The buffers of a large call that its kind needs.
struct Collectives::Buffers {
  bool send_reached, recv_reached;  // by every rank: one process, or memory of gsel_mem_alloc
  bool all_read;                    // every rank may read the memory of every other
};

// buffers() returns Buffers; called for large calls only.
template <class Look>
Choice Collectives::choose(const Call& call, Look&& buffers) const {
  if (at_.world_size() == 1) return {Protocol::alone, "there is one rank"};
  if (call.payload_bytes <= kLineBytes) return {Protocol::line, "what a rank sends fits the line that all ranks post"};
  if (small(call)) return {Protocol::slots, "what a rank sends fits the slot beside its line"};
  if (at_.one_process()) return {Protocol::direct, "the ranks are threads of one process"};
  const Buffers known = buffers();
  if (known.send_reached && known.recv_reached) return {Protocol::direct, "the buffers are memory of gsel_mem_alloc"};
  if (!prefers_single_copy(call))
    return {Protocol::staged, known.send_reached ? "recv is not memory of gsel_mem_alloc, and staging suits this size"
                                                 : "send is not memory of gsel_mem_alloc, and staging suits this size"};
  if (!known.all_read)
    return {Protocol::staged, "not memory of gsel_mem_alloc, and ranks may not read each other's memory"};
  return {Protocol::single_copy, "not memory of gsel_mem_alloc, and large enough to be read across processes"};
}

Choice Collectives::choose_by_lines(const Call& call, const Plan& plan) const {
  return choose(call, [&] {
    const bool all_recv = call.kind == GSEL_COLLECTIVE_ALLREDUCE, reduces = is_reduction(call.kind);
    Buffers known{true, true, true};
    for (int32_t q = 0; q < at_.world_size(); ++q) {
      const BufferAddresses& at = addresses_of(q);
      const bool lends = all_recv || (call.kind == GSEL_COLLECTIVE_REDUCE && q == call.root);
      if ((reduces || plan.publishes(q)) && at.send_offset == 0) known.send_reached = false;
      if (lends && at.recv_offset == 0) known.recv_reached = false;
      if (at.reads_all == 0) known.all_read = false;
    }
    return known;
  });
}

Choice Collectives::choose_by_own(const Call& call, const Plan& plan) {
  return choose(call, [&] {
    const bool sends = is_reduction(call.kind) || plan.publishes(at_.rank());
    const bool lends =
        call.kind == GSEL_COLLECTIVE_ALLREDUCE || (call.kind == GSEL_COLLECTIVE_REDUCE && call.root == at_.rank());
    return Buffers{!sends || memory_.offset_of(call.send, plan.send_bytes()) != 0,
                   !lends || memory_.offset_of(call.recv, plan.recv_bytes()) != 0,
                   prefers_single_copy(call) && memory_.reads_all()};
  });
}

// In a reduce, only the root has a recv buffer, so the others' results must be staged.
bool Collectives::prefers_single_copy(const Call& call) const {
  switch (call.kind) {
    case GSEL_COLLECTIVE_REDUCE:
      return false;
    case GSEL_COLLECTIVE_ALLREDUCE:
      return call.payload_bytes >= tuning_.single_copy_allreduce_from;
    case GSEL_COLLECTIVE_BROADCAST:
      return call.payload_bytes >= tuning_.single_copy_broadcast_from &&
             call.payload_bytes <= tuning_.single_copy_broadcast_to;
    default:
      return call.payload_bytes >= (gathers(call) ? tuning_.single_copy_gather_from : tuning_.single_copy_from);
  }
}

// Chunk size of the staged protocol.
uint64_t Collectives::staged_chunk(const Call& call, const Plan& plan) const {
  const uint64_t staging = at_.arena().layout().staging_bytes;
  if (call.kind == GSEL_COLLECTIVE_ALLREDUCE && at_.world_size() == 2)
    return std::min(tuning_.pair_chunk_bytes, staging);
  if (is_reduction(call.kind)) return block_bytes();
  return std::min<uint64_t>(plan.parts_differ() ? block_bytes() : staging, tuning_.chunk_bytes);
}

gsel_comm_explanation Collectives::explain(const Call& call) {
  const Plan plan(call, at_.rank(), at_.world_size());
  const Choice choice = choose_by_own(call, plan);
  gsel_comm_explanation out = GSEL_COMM_EXPLANATION_INIT;
  out.protocol = protocol_name(choice.protocol);
  out.reason = choice.reason;
  if (choice.protocol == Protocol::staged) out.chunk_bytes = staged_chunk(call, plan);
  out.seconds = predicted_seconds(at_.world_size(), call.kind, size_of(call, plan, at_.world_size()));
  out.sent_bytes = plan.sent_bytes();
  return out;
}

}  // namespace gsel::shm
