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
                                    way("direct", direct_allreduce),
                                    way("two-level", two_level_allreduce, Order::of_ranks_alone),
                                    way("chain", chain_allreduce),
                                    way("slices", slices_allreduce),
                                    {"rings", rings_allreduce},
                                    {"halving", halving_allreduce},
                                    {"leader", leader_allreduce},
                                    {"flat ring", flat_ring_allreduce},
                                    {"flat doubling", flat_doubling_allreduce}};
constexpr Algorithm kReduceScatter[] = {way("assembly", small_reduce_scatter),
                                        way("two-level", two_level_reduce_scatter, Order::of_ranks_alone),
                                        way("chain", chain_reduce_scatter),
                                        way("slices", slices_reduce_scatter),
                                        {"rings", rings_parts},
                                        {"halving", halving_parts},
                                        {"flat ring", flat_ring_parts}};
constexpr Algorithm kReduce[] = {
    way("assembly", small_allreduce), way("two-level", two_level_reduce, Order::of_ranks_alone),
    way("chain", chain_reduce),       way("slices", slices_reduce),
    {"rings", rings_rooted},          {"leader", leader_reduce},
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

// The same choice as way_of in lib/comm/hosts/ways.cc.
const char* name_taken(const ModelledCollective& collective, const HostWorld& world, double bytes) {
  const double payload = collective.payload(world, bytes), p = WorldSize(world).p;
  if (payload <= kSmallBytes && payload * p <= kSmallInAllBytes) return "assembly";
  if (collective.kind == Kind::allreduce && bytes * p <= kMostDirectBytes) return "direct";
  if (collective.kind == Kind::allreduce || collective.kind == Kind::other_reduction) {
    if (world.each == 1) return "two-level";
    return world.hosts <= kMostChainHosts ? "chain" : "slices";
  }
  return collective.kind == Kind::to_all && world.each > 1 ? "lanes" : "slices";
}

}  // namespace

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
