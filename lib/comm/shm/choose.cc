// comm/shm/choose.cc: which protocol a call takes, and why. The same choice runs a call and explains it.
#include <algorithm>

#include "comm/describe.h"
#include "comm/shm/link.h"

namespace gsel::shm {
namespace {

struct Words {
  const char *name, *of_collective, *of_message;
};
Words words_of(Protocol protocol) {
  switch (protocol) {
    case Protocol::alone:
      return {"alone", "there is one rank", "there is one rank"};
    case Protocol::line:
      return {"line", "what a rank sends fits the line that all ranks post", "the message fits a line"};
    case Protocol::slots:
      return {"slots", "what a rank sends fits the slot beside its line", "the message fits a slot"};
    case Protocol::direct:
      return {"direct", "the buffers are memory that every rank reaches", "the buffer is memory that the peer reaches"};
    case Protocol::single_copy:
      return {"single copy", "private memory, large enough to be read across processes",
              "private memory, large enough to be read across processes"};
    default:
      return {"staged", "private memory, larger than a slot", "private memory, larger than a slot"};
  }
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

Protocol Link::choose(const Call& call, const Plan&) const {
  if (world_size_ == 1) return Protocol::alone;
  if (call.payload_bytes <= kLineBytes) return Protocol::line;
  const size_t slot = is_point_to_point(call.kind) ? arena_->layout().slot_bytes : arena_->layout().small_bytes;
  return call.payload_bytes <= slot ? Protocol::slots : Protocol::staged;
}

gsel_comm_explanation Link::explain(const gsel_collective& given) const {
  Call call;
  complete(given, call);
  const bool message = is_point_to_point(call.kind);
  const Plan plan(call, rank_, world_size_);
  const Protocol protocol = choose(call, plan);
  const Words words = words_of(protocol);
  gsel_comm_explanation out = GSEL_COMM_EXPLANATION_INIT;
  out.protocol = words.name;
  out.reason = message ? words.of_message : words.of_collective;
  if (protocol == Protocol::staged) {
    const bool blocks = is_reduction(call.kind) || plan.parts_differ();
    out.chunk_bytes = message ? arena_->layout().slot_bytes : blocks ? block_bytes() : arena_->layout().staging_bytes;
  }
  out.seconds = predicted_seconds(world_size_, call.kind, size_of(call, plan, world_size_));
  if (!message)
    out.sent_bytes = bytes_sent(call, plan);
  else if (call.kind != GSEL_COLLECTIVE_RECV)
    out.sent_bytes = call.count * call.element;
  return out;
}

}  // namespace gsel::shm
