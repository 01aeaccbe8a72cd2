// collective_model.cc: see collective_model.h.
#include "collective_model.h"

#include <algorithm>
#include <cstring>

#include "collective_costs.h"

namespace gsel::cli {
namespace {

using Kind = ModelledCollective::Kind;
using Order = Algorithm::Order;

constexpr Algorithm way(const char* name, Cost (*cost)(const HostWorld&, double), Order order = Order::of_ranks) {
  return {name, cost, true, order};
}

constexpr Algorithm kAllreduce[] = {way("assembly", small_allreduce),
                                    way("at-first", at_first),
                                    way("direct", direct_allreduce),
                                    way("two-level", two_level_allreduce, Order::of_ranks_alone),
                                    way("chain", chain_allreduce),
                                    way("host-slices", host_slices_allreduce),
                                    {"rings", rings_allreduce},
                                    {"halving", halving_allreduce},
                                    {"leader", leader_allreduce},
                                    {"flat ring", flat_ring_allreduce},
                                    {"flat doubling", flat_doubling_allreduce}};
constexpr Algorithm kReduceScatter[] = {way("assembly", small_reduce_scatter),
                                        way("at-first", at_first),
                                        way("two-level", two_level_reduce_scatter, Order::of_ranks_alone),
                                        way("chain", chain_reduce_scatter),
                                        way("host-slices", host_slices_reduce_scatter),
                                        way("slices", slices_reduce_scatter),
                                        {"rings", rings_parts},
                                        {"halving", halving_parts},
                                        {"flat ring", flat_ring_parts}};
constexpr Algorithm kReduce[] = {way("assembly", small_allreduce),
                                 way("at-first", at_first),
                                 way("two-level", two_level_reduce, Order::of_ranks_alone),
                                 way("chain", chain_reduce),
                                 way("host-slices", host_slices_reduce),
                                 {"rings", rings_rooted},
                                 {"leader", leader_reduce},
                                 {"flat tree", flat_tree_rooted}};
constexpr Algorithm kAllgather[] = {way("assembly", small_to_all, Order::other),
                                    way("lanes", lanes_allgather, Order::other),
                                    way("slices", pairs_of_all, Order::other),
                                    {"rings", rings_parts},
                                    {"doubling", halving_parts},
                                    {"flat ring", flat_ring_parts}};
constexpr Algorithm kBroadcast[] = {way("assembly", small_call, Order::other),
                                    way("lanes", lanes_broadcast, Order::other),
                                    way("slices", pairs_broadcast, Order::other),
                                    {"rings", rings_rooted},
                                    {"leader", leader_broadcast},
                                    {"flat tree", flat_tree_rooted}};
constexpr Algorithm kGather[] = {way("assembly", small_to_all, Order::other),
                                 way("slices", pairs_rooted, Order::other),
                                 {"leader", leader_root_parts},
                                 {"flat tree", flat_tree_root_parts}};
constexpr Algorithm kScatter[] = {way("assembly", small_call, Order::other),
                                  way("slices", pairs_rooted, Order::other),
                                  {"leader", leader_root_parts},
                                  {"flat tree", flat_tree_root_parts}};
constexpr Algorithm kAlltoall[] = {way("assembly", small_call, Order::other),
                                   way("slices", pairs_of_all, Order::other),
                                   {"by host", hosts_alltoall},
                                   {"flat pairs", flat_pairs_alltoall}};
constexpr Algorithm kBarrier[] = {
    way("assembly", small_call, Order::other), {"leader", leader_barrier}, {"flat", flat_barrier}};

double all_bytes(const HostWorld&, double S) {
  return S;
}
double own_part(const HostWorld& world, double S) {
  return S / WorldSize(world).p;
}

constexpr ModelledCollective kCollectives[] = {{"allreduce", kAllreduce, all_bytes, Kind::allreduce},
                                               {"reduce_scatter", kReduceScatter, all_bytes, Kind::other_reduction},
                                               {"allgather", kAllgather, own_part, Kind::to_all},
                                               {"broadcast", kBroadcast, all_bytes, Kind::to_all},
                                               {"reduce", kReduce, all_bytes, Kind::other_reduction},
                                               {"gather", kGather, own_part, Kind::in_parts},
                                               {"scatter", kScatter, all_bytes, Kind::in_parts},
                                               {"alltoall", kAlltoall, all_bytes, Kind::in_parts},
                                               {"barrier", kBarrier, all_bytes, Kind::in_parts}};

// The same choices as in lib/comm/hosts/ways.cc, of sums of f32 over a transport that is not prompt.
const char* name_at_least_cost(const HostWorld& world, uint64_t bytes) {
  const auto hosts = static_cast<uint64_t>(world.hosts), each = static_cast<uint64_t>(world.each), ranks = hosts * each,
             others = hosts - 1;
  const auto elements = bytes / static_cast<uint64_t>(kElementBytes);
  const char* name = each == 1 ? "two-level" : "host-slices";
  uint64_t least = 2 * kStepPs + (2 * others + 2 * std::min(others, elements / each)) * kMessagePs +
                   bytes * ((each == 1 ? 2 : each + 1) * kNetworkBytePs + 2 * kMemoryBytePs);
  const auto take = [&](const char* other, uint64_t cost) {
    if (cost < least) name = other, least = cost;
  };
  const uint64_t lane = bytes / each, chunk = std::min(lane, chunk_bytes(lane, hosts, each));
  if (each > 1)
    take("chain", 2 * others * (kStepPs + 2 * kMessagePs + chunk * each * kNetworkBytePs) +
                      lane / std::max<uint64_t>(chunk, 1) * 4 * kMessagePs +
                      bytes * (2 * kNetworkBytePs + 2 * kMemoryBytePs));
  if (ranks * bytes <= kMostAtFirstBytes) take("at-first", ranks * bytes * (kNetworkBytePs + kMemoryBytePs));
  return name;
}

const char* name_taken(const ModelledCollective& collective, const HostWorld& world, double bytes) {
  const double payload = collective.payload(world, bytes), p = WorldSize(world).p;
  const bool reduces = collective.kind == Kind::allreduce || collective.kind == Kind::other_reduction;
  if (reduces && static_cast<uint64_t>(world.hosts) > kMostMeasuredHosts && payload > 0)
    return name_at_least_cost(world, static_cast<uint64_t>(payload));
  if (payload <= kSmallBytes && payload * p <= kSmallInAllBytes) return "assembly";
  if (collective.kind == Kind::allreduce && bytes * p <= kMostDirectBytes) return "direct";
  if (reduces) return world.each == 1 ? "two-level" : "chain";
  return collective.kind == Kind::to_all && world.each > 1 ? "lanes" : "slices";
}

}  // namespace

uint64_t chunk_bytes(uint64_t lane_bytes, uint64_t hosts, uint64_t each) {
  const uint64_t chunk = std::clamp(lane_bytes / kChunksOfLane, kLeastChunkBytes, kMostChunkBytes);
  if (hosts <= kMostMeasuredHosts) return chunk;
  uint64_t best = kMostChunkBytes;
  const uint64_t hops = 2 * (hosts - 1) * each * kNetworkBytePs;
  while (best > kLeastOfManyBytes && hops * best > lane_bytes / best * 4 * kMessagePs) best /= 2;
  return std::min(chunk, best);
}

const Algorithm* ModelledCollective::taken(const HostWorld& world, double bytes) const {
  if (world.hosts == 1) return nullptr;
  const char* const name_of_it = name_taken(*this, world, bytes);
  return &*std::ranges::find_if(algorithms,
                                [&](const Algorithm& one) { return std::strcmp(one.name, name_of_it) == 0; });
}

std::span<const ModelledCollective> modelled_collectives() {
  return kCollectives;
}

const ModelledCollective* find_modelled(const std::string& name) {
  for (const ModelledCollective& one : kCollectives)
    if (name == one.name) return &one;
  return nullptr;
}

}  // namespace gsel::cli
