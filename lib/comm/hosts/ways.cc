// comm/hosts/ways.cc: see ways.h.
#include "comm/hosts/ways.h"

#include <algorithm>
#include <bit>

#include "comm/call/collective.h"
#include "comm/hosts/frames.h"

namespace gsel::hosts {
namespace {

using shm::Call;

bool is_small(const Call& call, const Spread& spread) {
  if (goes_in_frames(call, spread)) return true;
  const uint64_t in_frames = call.kind == GSEL_COLLECTIVE_ALLREDUCE ? kSmallSum : kSmallInFrames;
  const uint64_t most = spread.has_frames ? in_frames : kSmallBytes;
  return call.payload_bytes <= most && call.payload_bytes * spread.ranks <= kSmallInAll;
}

// Not with a caller's operation: if it fails on one rank, the others do not notice, since they wait for no result of
// it. Nor to a host of few ranks, which would get the bytes of all others.
bool can_go_direct(const Call& call, const Spread& spread) {
  return call.kind == GSEL_COLLECTIVE_ALLREDUCE && call.operation.op < GSEL_OP_USER &&
         spread.ranks == spread.hosts * spread.most && call.count * call.element * spread.ranks <= kMostDirectBytes;
}

// The bits do not depend on the order.
bool is_integer(gsel_dtype dtype) {
  return dtype <= GSEL_U64 || dtype == GSEL_BOOL;
}

// A host's ranks are a subtree of the order, the same on every host.
bool has_subtrees(const Spread& spread) {
  return spread.order == GSEL_ORDER_TREE && spread.is_in_blocks && std::has_single_bit(spread.most);
}

// Whether a reduction gives the same bits if each host reduces its inputs first. The least and the greatest are the
// first of equal numbers, so hosts must be in order.
bool can_fold_in_hosts(const Call& call, const Spread& spread) {
  const gsel_op op = call.operation.op;
  if (op < GSEL_OP_USER && is_integer(call.dtype)) return true;
  return has_subtrees(spread) || ((op == GSEL_MIN || op == GSEL_MAX) && spread.is_consecutive);
}

bool is_scattered(const Call& call) {
  return call.kind != GSEL_COLLECTIVE_ALLREDUCE && call.kind != GSEL_COLLECTIVE_REDUCE;
}

// One rank is alone on one of two hosts, and each rank gets its part of the result.
bool is_scattered_from_one(const Call& call, const Spread& spread) {
  return is_scattered(call) && spread.most + 1 == spread.ranks;
}

// Both hosts send less at once in slices, if one of two hosts has one rank and each rank gets its part.
bool can_go_in_chain(const Call& call, const Spread& spread) {
  if (is_scattered_from_one(call, spread)) return false;
  return spread.order == GSEL_ORDER_RANKS && spread.is_consecutive && !spread.is_alone();
}

// In slices. To and from a host of one rank each rank sends its own inputs, if those of a host would be several
// messages.
Way way_of_slices(const Call& call, const Spread& spread) {
  const bool is_packed = call.payload_bytes / spread.ranks * spread.most <= kPackedBytes;
  return is_scattered_from_one(call, spread) && !is_packed ? Way::slices : Way::host_slices;
}

// ---- costs of reductions between many hosts, in picoseconds, besides what every call costs --------------------------

// The cheapest possible way. Way::direct never is: Way::at_first costs less.
class Costs {
 public:
  Costs(const Call& call, const Spread& spread)
      : call_(call), spread_(spread), bytes_(call.payload_bytes), others_(spread.hosts - 1) {}

  Way least() const {
    Way way = way_of_slices(call_, spread_);
    uint64_t least = in_pieces(spread_.most + 1);
    const auto take = [&](Way other, uint64_t cost) {
      if (cost < least) way = other, least = cost;
    };
    if (spread_.is_alone() || can_fold_in_hosts(call_, spread_))
      way = Way::two_levels, least = in_pieces(2);
    else if (can_go_in_chain(call_, spread_))
      take(Way::chain, chain());
    if (can_go_at_first()) take(Way::at_first, spread_.ranks * bytes_ * (kNetworkBytePs + kMemoryBytePs));
    return way;
  }

 private:
  // The first rank folds alone, so that a caller's operation would fail there only.
  bool can_go_at_first() const {
    return call_.operation.op < GSEL_OP_USER && !spread_.has_frames && spread_.ranks * bytes_ <= kMostAtFirstBytes;
  }
  uint64_t in_pieces(uint64_t payloads) const {
    const uint64_t elements = bytes_ / call_.element / spread_.most;
    const uint64_t messages = 2 * others_ + 2 * std::min<uint64_t>(others_, elements);
    return 2 * kStepPs + messages * kMessagePs + bytes_ * (payloads * kNetworkBytePs + 2 * kMemoryBytePs);
  }
  uint64_t chain() const {
    const uint64_t lane = bytes_ / spread_.most,
                   chunk = std::min(lane, chunk_bytes(lane, spread_.hosts, spread_.most, false));
    const uint64_t hop = kStepPs + 2 * kMessagePs + chunk * spread_.most * kNetworkBytePs;
    return 2 * others_ * hop + lane / std::max<uint64_t>(chunk, 1) * 4 * kMessagePs +
           bytes_ * (2 * kNetworkBytePs + 2 * kMemoryBytePs);
  }

  const Call& call_;
  const Spread& spread_;
  const uint64_t bytes_, others_;
};

Way way_of_reduction(const Call& call, const Spread& spread) {
  const bool is_user = call.operation.op >= GSEL_OP_USER;
  if (spread.hosts > kMostMeasuredHosts && call.payload_bytes > 0 && !(is_user && is_small(call, spread)))
    return Costs(call, spread).least();
  if (is_small(call, spread)) return Way::small;
  if (can_go_direct(call, spread)) return Way::direct;
  if (spread.is_alone() || can_fold_in_hosts(call, spread)) return Way::two_levels;
  return can_go_in_chain(call, spread) ? Way::chain : way_of_slices(call, spread);
}

}  // namespace

const char* way_name(Way way) {
  constexpr const char* kNames[kWays] = {"assembly", "at-first",    "direct", "two-level",
                                         "chain",    "host-slices", "lanes",  "slices"};
  return kNames[static_cast<size_t>(way)];
}

// With one rank per host, the payload may be longer.
bool goes_in_frames(const Call& call, const Spread& spread) {
  return spread.has_frames && spread.is_alone() && call.kind == GSEL_COLLECTIVE_ALLREDUCE &&
         call.operation.op != GSEL_SCALED_SUM && call.payload_bytes <= Frames::kShortBytes &&
         call.payload_bytes * spread.ranks <= kSmallInAll;
}

Way way_of(const Call& call, const Spread& spread) {
  if (is_reduction(call.kind)) return way_of_reduction(call, spread);
  if (is_small(call, spread)) return Way::small;
  const bool to_all = call.kind == GSEL_COLLECTIVE_ALLGATHER || call.kind == GSEL_COLLECTIVE_ALLGATHERV ||
                      call.kind == GSEL_COLLECTIVE_BROADCAST;
  return to_all && !spread.is_alone() ? Way::lanes : Way::slices;
}

// The last host begins after as many chunks as there are hosts before it, and each chunk costs messages: the largest
// power of two at which the first is less than the second.
uint64_t chunk_bytes(uint64_t lane_bytes, size_t hosts, size_t most_on_a_host, bool is_prompt) {
  const uint64_t least = is_prompt ? kLeastPromptBytes : kLeastChunkBytes;
  const uint64_t chunk = std::clamp(lane_bytes / kChunksOfLane, least, kMostChunkBytes);
  if (hosts <= kMostMeasuredHosts) return chunk;
  uint64_t best = kMostChunkBytes;
  const uint64_t hops = 2 * (hosts - 1) * most_on_a_host * kNetworkBytePs;
  while (best > kLeastOfManyBytes && hops * best > lane_bytes / best * 4 * kMessagePs) best /= 2;
  return std::min(chunk, best);
}

}  // namespace gsel::hosts
