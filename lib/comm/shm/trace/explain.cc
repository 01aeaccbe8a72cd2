// comm/shm/trace/explain.cc: explains what a call would do, without making it. It chooses as a call does, but knows
// only this rank's buffers, and assumes that those of all ranks are of the same kind.
#include <algorithm>

#include "comm/describe.h"
#include "comm/shm/link.h"

namespace gsel::shm {
namespace {

const char* name_of(Protocol protocol) {
  switch (protocol) {
    case Protocol::alone:
      return "alone";
    case Protocol::line:
      return "line";
    case Protocol::slots:
      return "slots";
    case Protocol::direct:
      return "direct";
    case Protocol::single_copy:
      return "single copy";
    case Protocol::staged:
      return "staged";
  }
  return "unknown";
}

// Bytes of the larger of a rank's two buffers, on the rank where it is largest: what predictions go by.
uint64_t size_of(const Call& call, const Plan& plan, int32_t ranks) {
  const uint64_t part = call.count * call.element;
  switch (call.kind) {
    case GSEL_COLLECTIVE_REDUCE_SCATTER:
    case GSEL_COLLECTIVE_ALLGATHER:
    case GSEL_COLLECTIVE_GATHER:
    case GSEL_COLLECTIVE_SCATTER:
    case GSEL_COLLECTIVE_ALLTOALL:
      return part * static_cast<uint64_t>(ranks);
    case GSEL_COLLECTIVE_ALLTOALLV: {
      uint64_t sent = 0, received = 0;
      for (int32_t q = 0; q < ranks; ++q) sent += plan.source(q).count, received += plan.target(q).count;
      return std::max(sent, received);
    }
    case GSEL_COLLECTIVE_SENDRECV:
      return std::max(call.count, call.recv_count) * call.element;
    default:
      return part;
  }
}

}  // namespace

Link::Expectation Link::expect(const Call& call, const Plan& plan) {
  if (world_size_ == 1) return {Protocol::alone, "there is one rank"};
  if (is_point_to_point(call.kind)) return expect_message(call);
  if (call.payload_bytes <= kLineBytes) return {Protocol::line, "what a rank sends fits the line that all ranks post"};
  if (small(call)) return {Protocol::slots, "what a rank sends fits the slot beside its line"};
  if (one_process_) return {Protocol::direct, "the ranks are threads of one process"};
  const bool sends = is_reduction(call.kind) || plan.publishes(rank_);
  const bool lends =
      call.kind == GSEL_COLLECTIVE_ALLREDUCE || (call.kind == GSEL_COLLECTIVE_REDUCE && call.root == rank_);
  const bool send_reached = !sends || family_->offset_of(call.send, plan.send_bytes()) != 0;
  const bool recv_reached = !lends || family_->offset_of(call.recv, plan.recv_bytes()) != 0;
  if (send_reached && recv_reached) return {Protocol::direct, "the buffers are memory of gsel_mem_alloc"};
  if (!prefers_single_copy(call))
    return {Protocol::staged, send_reached ? "recv is not memory of gsel_mem_alloc, and staging suits this size"
                                           : "send is not memory of gsel_mem_alloc, and staging suits this size"};
  if (!reads_all())
    return {Protocol::staged, "not memory of gsel_mem_alloc, and ranks may not read each other's memory"};
  return {Protocol::single_copy, "not memory of gsel_mem_alloc, and large enough to be read across processes"};
}

// Of the longer one, where a call sends and receives.
Link::Expectation Link::expect_message(const Call& call) {
  const bool both = call.kind == GSEL_COLLECTIVE_SENDRECV;
  const bool sends = both ? call.count >= call.recv_count : !receives_message(call.kind);
  const uint64_t bytes = (both ? std::max(call.count, call.recv_count) : call.count) * call.element;
  if (bytes <= kLineBytes) return {Protocol::line, "the message fits a line"};
  if (bytes <= arena_->layout().slot_bytes) return {Protocol::slots, "the message fits a slot"};
  switch (expected_way(call, sends, bytes)) {
    case Way::pointer:
      return {Protocol::direct, "larger than a slot, and the ranks are threads of one process"};
    case Way::offset:
      return {Protocol::direct, "larger than a slot, and in memory of gsel_mem_alloc"};
    case Way::remote:
      return {Protocol::single_copy, "not memory of gsel_mem_alloc, and large enough to be read across processes"};
    default:
      return {Protocol::staged, bytes < tuning_.single_copy_from
                                    ? "larger than a slot, and pieces suit this size"
                                    : "larger than a slot, and the receiver may not read the sender's memory"};
  }
}

// The sender's memory is taken to be of the kind of the receiver's, and ranks to read each other or not.
Way Link::expected_way(const Call& call, bool sends, uint64_t bytes) {
  const int32_t rank = sends || call.kind != GSEL_COLLECTIVE_SENDRECV ? call.root : call.source;
  const char* data = sends ? call.send : call.recv;
  if (rank >= 0) {
    const Way way = way_to(rank, data, bytes);
    const bool is_known = sends && peer(rank).reads_us != Peer::Reading::open;
    const bool reads = is_known || reads_memory_of(rank);
    return way == Way::remote && !reads ? Way::slot : way;
  }
  if (one_process_) return Way::pointer;
  if (family_->offset_of(data, bytes) != 0) return Way::offset;
  return bytes >= tuning_.single_copy_from && reads_all() ? Way::remote : Way::slot;
}

// Of what is staged.
uint64_t Link::staged_chunk(const Call& call, const Plan& plan) const {
  const uint64_t staging = arena_->layout().staging_bytes;
  if (is_point_to_point(call.kind)) return arena_->layout().slot_bytes;
  if (call.kind == GSEL_COLLECTIVE_ALLREDUCE && world_size_ == 2) return std::min(tuning_.pair_chunk_bytes, staging);
  if (is_reduction(call.kind)) return block_bytes();
  return std::min<uint64_t>(plan.parts_differ() ? block_bytes() : staging, tuning_.chunk_bytes);
}

gsel_comm_explanation Link::explain(const gsel_collective& given) {
  require_own_process("gsel_comm_explain");
  Call call;
  complete(given, world_size_, timeout_ns_.load(), call);
  const Plan plan(call, rank_, world_size_);
  const Expectation choice = expect(call, plan);
  gsel_comm_explanation out = GSEL_COMM_EXPLANATION_INIT;
  out.protocol = name_of(choice.protocol);
  out.reason = choice.reason;
  out.transport = "shm";
  out.transport_reason = "the ranks are of one host";
  if (choice.protocol == Protocol::staged) out.chunk_bytes = staged_chunk(call, plan);
  out.seconds = predicted_seconds(world_size_, call.kind, size_of(call, plan, world_size_));
  if (!is_point_to_point(call.kind))
    out.sent_bytes = bytes_sent(call, plan);
  else if (call.kind != GSEL_COLLECTIVE_RECV)
    out.sent_bytes = call.count * call.element;
  return out;
}

}  // namespace gsel::shm
