// comm/shm/collective/small.cc: payloads that are sent with the header line, in the line or in the rank's small slot.
// Every rank does the whole reduction or copy itself, in rank order.
#include <cstring>

#include "comm/call/collective.h"
#include "comm/shm/collective/collectives.h"

namespace gsel::shm {

void Collectives::publish_small(const Call& call, const Plan& plan, HeaderLine& line, uint64_t parity) {
  if (call.payload_bytes == 0) return;
  char* place =
      call.payload_bytes <= kLineBytes ? reinterpret_cast<char*>(line.payload) : at_.arena().small(at_.rank(), parity);
  if (is_reduction(call.kind) && plan.scattered()) {
    for (int32_t q = 0; q < at_.world_size(); ++q) {
      const Bytes part = plan.sent(q);
      if (part.count > 0) std::memcpy(place + plan.packed_begin(q), call.send + part.begin, part.count);
    }
  } else if (is_reduction(call.kind)) {
    std::memcpy(place, call.send, call.payload_bytes);
  } else if (!plan.parts_differ()) {
    const size_t bytes = plan.packed(at_.rank(), call.root < 0 ? at_.rank() : call.root).count;
    if (bytes > 0) std::memcpy(place, call.send, bytes);  // send may be NULL if bytes is 0
  } else {
    for (int32_t q = 0; q < at_.world_size(); ++q) {
      const Bytes from = plan.source(q), to = plan.packed(at_.rank(), q);
      if (to.count > 0) std::memcpy(place + to.begin, call.send + from.begin, to.count);
    }
  }
  hit(Step::staged);
}

const char* Collectives::small_payload(int32_t rank, const Call& call) const {
  if (call.payload_bytes > kLineBytes) return at_.arena().small(rank, sequence_ & 1);
  return reinterpret_cast<const char*>(at_.block(rank).line[sequence_ & 1].payload);
}

void Collectives::finish_small(const Call& call, const Plan& plan) {
  if (call.payload_bytes == 0) return;
  if (!is_reduction(call.kind)) {
    for (int32_t q = 0; q < at_.world_size(); ++q) {
      const Bytes from = plan.packed(q, at_.rank()), to = plan.target(q);
      if (to.count > 0) std::memcpy(call.recv + to.begin, small_payload(q, call) + from.begin, to.count);
    }
    hit(Step::copied);
    return;
  }
  if (call.kind == GSEL_COLLECTIVE_REDUCE && call.root != at_.rank()) return;
  const bool whole = call.kind == GSEL_COLLECTIVE_ALLREDUCE || call.kind == GSEL_COLLECTIVE_REDUCE;
  const gsel_range own = whole ? gsel_range{0, static_cast<int64_t>(call.count)} : plan.slice(at_.rank());
  const void* inputs[kMaxRanks];
  double factors[kMaxRanks];
  const size_t here = static_cast<size_t>(own.begin) * call.element;
  const size_t there = plan.scattered() ? plan.packed_begin(at_.rank()) : here;
  for (int32_t q = 0; q < at_.world_size(); ++q)
    inputs[q] = q == at_.rank() ? call.send + here : small_payload(q, call) + there;
  host::reduce(fold_of(call, factors), call.recv, inputs, at_.world_size(), static_cast<size_t>(own.end - own.begin));
  hit(Step::reduced);
}

}  // namespace gsel::shm
