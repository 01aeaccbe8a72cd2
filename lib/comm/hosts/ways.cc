// comm/hosts/ways.cc: see ways.h.
#include "comm/hosts/ways.h"

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
// it.
bool goes_direct(const Call& call, const Spread& spread) {
  return call.kind == GSEL_COLLECTIVE_ALLREDUCE && call.operation.op < GSEL_OP_USER && spread.is_in_blocks &&
         call.count * call.element * spread.ranks <= kMostDirectBytes;
}

// The bits do not depend on the order.
bool is_integer(gsel_dtype dtype) {
  return dtype <= GSEL_U64 || dtype == GSEL_BOOL;
}

bool goes_in_two_levels(const Call& call, const Spread& spread) {
  if (!is_reduction(call.kind) || !spread.is_in_blocks) return false;
  if (spread.here == 1) return true;
  if (is_integer(call.dtype) && call.operation.op < GSEL_OP_USER) return true;
  return spread.order == GSEL_ORDER_TREE && std::has_single_bit(spread.here);
}

bool goes_in_chain(const Call& call, const Spread& spread) {
  return is_reduction(call.kind) && spread.order == GSEL_ORDER_RANKS && spread.is_in_blocks && spread.here > 1 &&
         spread.hosts <= kMostChainHosts;
}

bool goes_by_lanes(const Call& call, const Spread& spread) {
  const bool to_all = call.kind == GSEL_COLLECTIVE_ALLGATHER || call.kind == GSEL_COLLECTIVE_ALLGATHERV ||
                      call.kind == GSEL_COLLECTIVE_BROADCAST;
  return to_all && spread.is_in_blocks && spread.here > 1;
}

}  // namespace

const char* way_name(Way way) {
  constexpr const char* kNames[kWays] = {"assembly", "direct", "two-level", "chain", "lanes", "slices"};
  return kNames[static_cast<size_t>(way)];
}

// With one rank per host, the payload may be longer.
bool goes_in_frames(const Call& call, const Spread& spread) {
  return spread.has_frames && spread.here == 1 && call.kind == GSEL_COLLECTIVE_ALLREDUCE &&
         call.operation.op != GSEL_SCALED_SUM && call.payload_bytes <= Frames::kShortBytes &&
         call.payload_bytes * spread.ranks <= kSmallInAll;
}

Way way_of(const Call& call, const Spread& spread) {
  if (is_small(call, spread)) return Way::small;
  if (goes_direct(call, spread)) return Way::direct;
  if (goes_in_two_levels(call, spread)) return Way::two_levels;
  if (goes_in_chain(call, spread)) return Way::chain;
  return goes_by_lanes(call, spread) ? Way::lanes : Way::slices;
}

}  // namespace gsel::hosts
