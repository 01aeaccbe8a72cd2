// comm/shm/copy/small.cc: payloads that are sent with the header line: in the line, or in the slot beside it. Every
// rank does the whole work on all payloads, in rank order.
#include <algorithm>
#include <cstring>

#include "base/dtype.h"
#include "base/text.h"
#include "comm/describe.h"
#include "comm/shm/link.h"

namespace gsel::shm {

void Link::publish_small(const Call& call, const Plan& plan, HeaderLine& line, uint64_t parity) {
  if (call.payload_bytes == 0) return;
  char* place = call.payload_bytes <= kLineBytes ? reinterpret_cast<char*>(line.payload) : arena_->small(rank_, parity);
  if (is_reduction(call.kind) && call.send_offsets) {
    for (int32_t q = 0; q < world_size_; ++q) {
      const gsel_range part = plan.slice(q);
      std::memcpy(place + plan.packed_begin(q), call.send + static_cast<size_t>(part.begin) * call.element,
                  static_cast<size_t>(part.end - part.begin) * call.element);
    }
  } else if (is_reduction(call.kind)) {
    std::memcpy(place, call.send, call.payload_bytes);
  } else if (!plan.parts_differ()) {
    const size_t bytes = plan.packed(rank_, call.root < 0 ? rank_ : call.root).count;
    if (bytes > 0) std::memcpy(place, call.send, bytes);  // who gives nothing may have NULL
  } else {
    for (int32_t q = 0; q < world_size_; ++q) {
      const Bytes from = plan.source(q), to = plan.packed(rank_, q);
      if (to.count > 0) std::memcpy(place + to.begin, call.send + from.begin, to.count);
    }
  }
  hit(Step::staged);
}

const char* Link::small_payload(int32_t rank, const Call& call) const {
  if (call.payload_bytes > kLineBytes) return arena_->small(rank, sequence_ & 1);
  return reinterpret_cast<const char*>(arena_->rank(rank).line[sequence_ & 1].payload);
}

void Link::finish_small(const Call& call, const Plan& plan) {
  if (call.payload_bytes == 0) return;
  if (!is_reduction(call.kind)) {
    for (int32_t q = 0; q < world_size_; ++q) {
      const Bytes from = plan.packed(q, rank_), to = plan.target(q);
      if (to.count > 0) std::memcpy(call.recv + to.begin, small_payload(q, call) + from.begin, to.count);
    }
    hit(Step::copied);
    return;
  }
  if (call.kind == GSEL_COLLECTIVE_REDUCE && call.root != rank_) return;
  const bool whole = call.kind == GSEL_COLLECTIVE_ALLREDUCE || call.kind == GSEL_COLLECTIVE_REDUCE;
  const gsel_range own = whole ? gsel_range{0, static_cast<int64_t>(call.count)} : plan.slice(rank_);
  const void* inputs[kMaxRanks];
  double factors[kMaxRanks];
  const size_t here = static_cast<size_t>(own.begin) * call.element;
  const size_t there = call.send_offsets ? plan.packed_begin(rank_) : here;
  for (int32_t q = 0; q < world_size_; ++q) inputs[q] = q == rank_ ? call.send + here : small_payload(q, call) + there;
  host::reduce(fold_of(call, factors), call.recv, inputs, world_size_, static_cast<size_t>(own.end - own.begin));
  hit(Step::reduced);
}

void Link::publish_row(const Plan& plan, uint64_t parity) {
  static_assert(kMaxRanks * sizeof(Bytes) <= kLeastSmallBytes);
  auto* row = reinterpret_cast<Bytes*>(arena_->small(rank_, parity));
  if (plan.publishes(rank_))
    for (int32_t q = 0; q < world_size_; ++q) row[q] = plan.source(q);
}

// Of an alltoallv: what others have for this rank must be what it expects; the largest part decides the chunks.
void Link::read_rows(const Call& call, const Plan& plan) {
  for (int32_t q = 0; q < world_size_; ++q) {
    const Bytes* row = row_of(q);
    for (int32_t reader = 0; reader < world_size_; ++reader) largest_part_ = std::max(largest_part_, row[reader].count);
    if (row[rank_].count != plan.target(q).count)
      break_link(GSEL_ERR_MISMATCH, q,
                 fmt::format("alltoallv: rank {} has {} of {} for rank {}, which expects {}; make send_counts "
                             "and recv_counts agree",
                             q, with_noun(row[rank_].count / call.element, "element"), dtype_name(call.dtype), rank_,
                             plan.target(q).count / call.element));
  }
}

// What gsel_comm_counts adds: by what is asked for, whatever the protocol.
uint64_t Link::bytes_sent(const Call& call, const Plan& plan) const {
  if (call.kind == GSEL_COLLECTIVE_BARRIER) return 0;
  const auto slice_bytes = [&](int32_t q) {
    const gsel_range slice = plan.slice(q);
    return static_cast<uint64_t>(slice.end - slice.begin) * call.element;
  };
  const uint64_t others = ranks() - 1;
  switch (call.kind) {
    case GSEL_COLLECTIVE_ALLREDUCE:
      if (others < 2) return others * call.count * call.element;  // without a division
      return call.count * call.element + (others - 1) * slice_bytes(rank_);
    case GSEL_COLLECTIVE_REDUCE:
      return call.count * call.element - (rank_ == call.root ? slice_bytes(rank_) : 0);
    case GSEL_COLLECTIVE_REDUCE_SCATTER:
      return others * call.count * call.element;
    case GSEL_COLLECTIVE_REDUCE_SCATTERV:
      return call.count * call.element - slice_bytes(rank_);
    default: {
      uint64_t sum = 0;
      for (int32_t q = 0; q < world_size_; ++q) sum += q == rank_ ? 0 : plan.source(q).count;
      return sum;
    }
  }
}

}  // namespace gsel::shm
