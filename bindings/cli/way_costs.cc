// way_costs.cc: costs of the library's algorithms between hosts; see collective_costs.h. N hosts with g ranks each, p =
// N g; S bytes. A rank exchanges with the p - g ranks of other hosts, or with the N - 1 ranks that have the same index
// there.
#include <algorithm>
#include <cmath>

#include "collective_costs.h"
#include "collective_model.h"

namespace gsel::cli {
namespace {

double near_share(const WorldSize& n) {
  return (n.g - 1) / n.g;
}

// The cost of an algorithm plus that of the agreement before it.
Cost agreed(const HostWorld& world, Cost way) {
  if (world.ranks() == 1) return {};
  if (world.hosts == 1) way.network_steps = way.network_bytes = way.messages = 0;
  if (world.each == 1) way.host_steps = 0;
  if (world.hosts > 1) way += agreement(world, 0);
  return way;
}

// `folded`: bytes of all ranks' data that a rank reduces.
Cost small(const HostWorld& world, double payload, double folded) {
  if (world.ranks() == 1) return {};
  Cost cost = agreement(world, payload);
  cost.host_bytes += folded;
  return cost;
}

// Number of segments that one rank sends another in the two-level algorithm.
double segments(const WorldSize& n, double S) {
  return std::max(1.0, std::ceil(S / n.p / kPieceChunkBytes));
}

// The ranks of a host reduce their data, then one rank of each host reduces the hosts' results.
double folded_in_two_levels(const WorldSize& n, double S) {
  return (n.g > 1 ? S : 0) + S / n.g;
}

// A pipeline of hosts: the first chunk passes all hops, the others follow. In an allreduce, a host in the middle sends
// in both directions.
struct Pipeline {
  double chunks, chunk;  // chunk: bytes of it in all lanes
  Pipeline(const WorldSize& n, double S, double pieces) {
    const double piece = S / n.g / pieces;
    const double in_lane =
        std::min(piece, static_cast<double>(chunk_bytes(static_cast<uint64_t>(piece), static_cast<uint64_t>(n.N),
                                                        static_cast<uint64_t>(n.g))));
    chunks = in_lane > 0 ? pieces * std::ceil(piece / in_lane) : pieces;
    chunk = n.g * in_lane;
  }
};

Cost chain(const HostWorld& world, double S, double hops, double directions, const Pipeline& pipeline) {
  const WorldSize n(world);
  const double behind = S - pipeline.chunk;
  const double folded = (n.g + 1) / n.g * (behind + n.N * pipeline.chunk);
  return {0, hops, S * near_share(n) + folded, directions * behind + hops * pipeline.chunk,
          2 * hops + 2 * directions * (pipeline.chunks - 1)};
}

// Slices of the elements, each reduced by one rank: with fewer elements than ranks, one element each. `here` of them on
// the busiest host; `to` hosts get what a rank has for slices. parts: messages with which a host's inputs for a slice
// go.
struct Slices {
  double here, bytes, to, parts;
  Slices(const WorldSize& n, double S) : bytes(std::max(S / n.p, kElementBytes)) {
    const double elements = std::max(1.0, std::floor(S / kElementBytes));
    here = std::min(n.g, elements);
    to = std::min(n.N - 1, std::ceil(elements / n.g));
    parts = n.g * bytes <= kPackedBytes ? 1 : n.g * segments(n, S);
  }
};

}  // namespace

Cost small_allreduce(const HostWorld& world, double S) {
  return small(world, S, WorldSize(world).p * S);
}

Cost small_reduce_scatter(const HostWorld& world, double S) {
  return small(world, S, S);
}

Cost small_to_all(const HostWorld& world, double S) {
  return small(world, S / WorldSize(world).p, 0);
}

Cost small_call(const HostWorld& world, double S) {
  return small(world, S, 0);
}

Cost at_first(const HostWorld& world, double S) {
  const WorldSize n(world);
  if (world.ranks() == 1) return {};
  Cost cost = agreement_at_first(world, S, S);
  cost.host_bytes += 2 * n.p * S;  // sorted and reduced
  return cost;
}

Cost direct_allreduce(const HostWorld& world, double S) {
  const WorldSize n(world);
  return agreed(world, {2, 1, 2 * S * near_share(n) + n.N * S, n.far * S, 2 * n.far});
}

Cost two_level_allreduce(const HostWorld& world, double S) {
  const WorldSize n(world);
  return agreed(world, {2, 2, folded_in_two_levels(n, S) + S * near_share(n), 2 * S * (n.N - 1) / n.N,
                        4 * (n.N - 1) * segments(n, S)});
}

Cost two_level_reduce(const HostWorld& world, double S) {
  const WorldSize n(world);
  return agreed(world, {2, 2, folded_in_two_levels(n, S) + S * near_share(n), 2 * S * (n.N - 1) / n.N,
                        3 * (n.N - 1) * segments(n, S)});
}

Cost two_level_reduce_scatter(const HostWorld& world, double S) {
  const WorldSize n(world);
  return agreed(world, {n.N, 1, folded_in_two_levels(n, S) + S * near_share(n), S * (n.N - 1) / n.N,
                        2 * (n.N - 1) * segments(n, S)});
}

Cost chain_allreduce(const HostWorld& world, double S) {
  const WorldSize n(world);
  Cost cost = chain(world, S, 2 * (n.N - 1), n.N > 2 ? 2 : 1, Pipeline(n, S, 1));
  cost += {2, 0, S * near_share(n), 0, 0};
  return agreed(world, cost);
}

Cost chain_reduce(const HostWorld& world, double S) {
  const WorldSize n(world);
  Cost cost = chain(world, S, n.N, 1, Pipeline(n, S, 1));
  cost += {2, 0, S * near_share(n), 0, 0};
  return agreed(world, cost);
}

Cost chain_reduce_scatter(const HostWorld& world, double S) {
  const WorldSize n(world);
  Cost cost = chain(world, S, n.N, 1, Pipeline(n, S, n.N));
  cost.host_steps = n.N;
  return agreed(world, cost);
}

Cost host_slices_allreduce(const HostWorld& world, double S) {
  const WorldSize n(world);
  const Slices of(n, S);
  return agreed(world, {2, 2, 2 * S * near_share(n) + n.p * of.bytes, of.here * of.bytes * (n.far + n.N - 1),
                        (n.N - 1 + of.to) * (of.parts + segments(n, S))});
}

Cost host_slices_reduce(const HostWorld& world, double S) {
  const WorldSize n(world);
  const Slices of(n, S);
  return agreed(world, {2, 2, 2 * S * near_share(n) + n.p * of.bytes, of.here * of.bytes * (n.far + n.N - 1),
                        (n.N - 1 + of.to) * of.parts + of.to * segments(n, S)});
}

Cost host_slices_reduce_scatter(const HostWorld& world, double S) {
  const WorldSize n(world);
  return agreed(world, {n.N, 1, S * near_share(n) + S, n.g * S * (n.N - 1) / n.N, 2 * (n.N - 1) * Slices(n, S).parts});
}

Cost slices_reduce_scatter(const HostWorld& world, double S) {
  const WorldSize n(world);
  return agreed(world, {1, 1, (n.g - 1) * S / n.p + S, n.g * S * (n.N - 1) / n.N, 2 * n.far});
}

Cost lanes_allgather(const HostWorld& world, double S) {
  const WorldSize n(world);
  return agreed(world, {n.N, 1, S * near_share(n), S * (n.N - 1) / n.N, 2 * (n.N - 1)});
}

Cost lanes_broadcast(const HostWorld& world, double S) {
  const WorldSize n(world);
  return agreed(world, {2, 1, (n.g > 1 ? S : 0) + S * near_share(n), S * (n.N - 1), n.N - 1});
}

Cost pairs_of_all(const HostWorld& world, double S) {
  const WorldSize n(world);
  return agreed(world, {1, 1, (n.g - 1) * S / n.p, n.g * S * (n.N - 1) / n.N, 2 * n.far});
}

Cost pairs_broadcast(const HostWorld& world, double S) {
  const WorldSize n(world);
  return agreed(world, {1, 1, n.g > 1 ? S : 0, n.far * S, n.far});
}

Cost pairs_rooted(const HostWorld& world, double S) {
  const WorldSize n(world);
  return agreed(world, {1, 1, (n.g - 1) * S / n.p, S * (n.N - 1) / n.N, n.far});
}

}  // namespace gsel::cli
