// comm/shm/call/plan.h: which bytes of whose buffer a call moves where, and the names of the ways by which they can
// travel. The same arithmetic serves every protocol. Does not know how the protocols work.
#pragma once

#include <gsel/comm.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "comm/call/collective.h"
#include "comm/shm/call/call.h"

namespace gsel::shm {

enum class Protocol { alone, line, slots, direct, single_copy, staged };
const char* protocol_name(Protocol protocol);  // as gsel_comm_explain tells it

// The way a call takes, and why.
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

  // Copies. What `owner` publishes for `reader`, packed; where it stands in this rank's own send; where what comes from
  // `owner` belongs in this rank's recv.
  Bytes packed(int32_t owner, int32_t reader) const;
  Bytes source(int32_t reader) const;
  Bytes sent(int32_t reader) const;  // the same, and what `reader` reduces
  Bytes target(int32_t owner) const;
  uint64_t largest_part() const;  // of all; what only one rank knows left out
  // How far this rank's buffers reach from their start.
  uint64_t send_bytes() const;
  uint64_t recv_bytes() const;
  // What this rank sends to others, as gsel_comm_counts adds it: by what is asked for, whatever the protocol.
  uint64_t sent_bytes() const;
  // false: every reader gets the same bytes of an owner.
  bool parts_differ() const { return row_.parts_differ(); }
  bool publishes(int32_t owner) const { return !row_.sent_by_root || owner == call_.root; }

  // Reductions, in elements of the space that is reduced: what `rank` folds, and where in whose recv it ends up.
  gsel_range slice(int32_t rank) const;
  uint64_t packed_begin(int32_t rank) const {
    const auto r = static_cast<size_t>(rank);
    return packed_.empty() ? r * part() : packed_[r] * call_.element;
  }
  bool scattered() const { return call_.send_offsets || call_.send_parts; }  // what is sent is not packed

 private:
  uint64_t part() const { return call_.count * call_.element; }
  Bytes sent_to(int32_t reader, const std::vector<uint64_t>& starts) const;

  const Call& call_;
  const CollectiveRow& row_;
  int32_t rank_;
  int32_t world_size_;
  // [world_size] of the v kinds, and where the caller gives parts: where they start, elements. Packed in rank order, or
  // as the caller says.
  std::vector<uint64_t> packed_, send_starts_, recv_starts_;
};

}  // namespace gsel::shm
