// comm/shm/call/plan.h: which bytes of which rank's buffer a call moves where, and the names of the protocols. All
// protocols share this arithmetic. Does not know how the protocols work.
#pragma once

#include <gsel/comm.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "comm/call/collective.h"
#include "comm/shm/call/call.h"

namespace gsel::shm {

enum class Protocol { alone, line, slots, direct, single_copy, staged };
const char* protocol_name(Protocol protocol);  // as in gsel_comm_explain

// The protocol of a call, and why it was chosen.
struct Choice {
  Protocol protocol;
  const char* reason;
};

struct Bytes {
  uint64_t begin = 0, count = 0;
};

// Arithmetic over one call; ranks are those of its communicator.
class Plan {
 public:
  Plan(const Call& call, int32_t rank, int32_t world_size);

  // For copies. packed: the bytes that `owner` publishes for `reader`, packed. source: the place of `reader`'s bytes in
  // this rank's send. target: the place of `owner`'s bytes in this rank's recv.
  Bytes packed(int32_t owner, int32_t reader) const;
  Bytes source(int32_t reader) const;
  Bytes sent(int32_t reader) const;  // source(), or for a reduction the bytes that `reader` reduces
  Bytes target(int32_t owner) const;
  uint64_t largest_part() const;  // over all ranks, without sizes that only one rank knows
  // Extents of this rank's buffers.
  uint64_t send_bytes() const;
  uint64_t recv_bytes() const;
  // Bytes that this rank sends to others, as gsel_comm_counts counts them; independent of the protocol.
  uint64_t sent_bytes() const;
  // false: every reader gets the same bytes from an owner.
  bool parts_differ() const { return row_.parts_differ(); }
  bool publishes(int32_t owner) const { return !row_.sent_by_root || owner == call_.root; }

  // For reductions: the elements that `rank` reduces.
  gsel_range slice(int32_t rank) const;
  uint64_t packed_begin(int32_t rank) const {
    const auto r = static_cast<size_t>(rank);
    return packed_.empty() ? r * part() : packed_[r] * call_.element;
  }
  bool scattered() const { return call_.send_offsets || call_.send_parts; }  // the send buffer is not packed

 private:
  uint64_t part() const { return call_.count * call_.element; }
  Bytes sent_to(int32_t reader, const std::vector<uint64_t>& starts) const;

  const Call& call_;
  const CollectiveRow& row_;
  int32_t rank_;
  int32_t world_size_;
  // [world_size], for the v kinds and for parts: where each part starts, in elements; packed_ if packed in rank order.
  std::vector<uint64_t> packed_, send_starts_, recv_starts_;
};

}  // namespace gsel::shm
