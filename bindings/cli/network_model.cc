// network_model.cc: see network_model.h. N hosts of g ranks, p = N g; S bytes.
#include "network_model.h"

#include <algorithm>
#include <bit>

namespace gsel::cli {
namespace {

int64_t floor_log2(int64_t n) {
  return static_cast<int64_t>(std::bit_width(static_cast<uint64_t>(n))) - 1;
}

struct Sizes {
  double N, g, p;
  bool network;  // several hosts
  explicit Sizes(const HostWorld& world)
      : N(static_cast<double>(world.hosts)),
        g(static_cast<double>(world.each)),
        p(static_cast<double>(world.ranks())),
        network(world.hosts > 1) {}
};

// The share of n that is not one's own.
double others(double n) {
  return (n - 1) / n;
}

// What ranks of a host do before and behind the part between hosts, where there are several: `steps` in memory.
Cost inside(const Sizes& n, double steps, double bytes) {
  return n.g > 1 ? Cost{steps, 0, bytes, 0} : Cost{};
}

Cost with_network(Cost cost, const Sizes& n, double steps, double bytes) {
  if (n.network) cost.network_steps = steps, cost.network_bytes = bytes;
  return cost;
}

// Of ranks that know nothing of hosts: each step waits for the slowest link, which is the network's if there is one.
Cost flat(const Sizes& n, double steps, double bytes) {
  return n.network ? Cost{0, steps, 0, bytes} : Cost{steps, 0, bytes, 0};
}

// Exchanges at doubling distance: the first are between ranks of a host. `copies` of the bytes pass an adapter at once.
Cost by_distance(const HostWorld& world, double steps, double bytes, double copies) {
  const double near = world.hosts > 1 ? static_cast<double>(floor_log2(world.each)) : steps;
  return {near, steps - near, near * bytes, (steps - near) * copies * bytes};
}

// ---- allreduce ----

Cost allreduce_slices(const HostWorld& world, double S) {
  const Sizes n(world);
  return with_network(inside(n, 2, 2 * S * others(n.g)), n, 2 * (n.N - 1), 2 * S * others(n.N));
}

// Between hosts by recursive halving and doubling. Hosts beyond a power of two hand theirs to another and get the
// result.
Cost allreduce_halving(const HostWorld& world, double S) {
  const Sizes n(world);
  const int64_t log = floor_log2(world.hosts);
  const double power = static_cast<double>(int64_t{1} << log), beyond = power < n.N ? 2 : 0;
  return with_network(inside(n, 2, 2 * S * others(n.g)), n, 2 * static_cast<double>(log) + beyond,
                      2 * S * others(power) + beyond * S);
}

Cost allreduce_leader(const HostWorld& world, double S) {
  const Sizes n(world);
  const auto steps = static_cast<double>(doubling_steps(world.hosts));
  return with_network(inside(n, 2, S * (n.g - 1) + S), n, steps, S * steps);
}

Cost allreduce_chain(const HostWorld& world, double S) {
  const Sizes n(world);
  const double steps = 2 * (n.N - 1);
  return with_network(inside(n, 2, 2 * S * others(n.g)), n, steps, S + steps * std::min(S, kChainBytes));
}

Cost allreduce_ring(const HostWorld& world, double S) {
  const Sizes n(world);
  return flat(n, 2 * (n.p - 1), 2 * S * others(n.p));
}

Cost allreduce_doubling(const HostWorld& world, double S) {
  return by_distance(world, static_cast<double>(doubling_steps(world.ranks())), S, static_cast<double>(world.each));
}

// ---- reduce_scatter and allgather: S is the longer buffer ----

Cost parts_slices(const HostWorld& world, double S) {
  const Sizes n(world);
  return with_network(inside(n, 1, S * others(n.g)), n, n.N - 1, S * others(n.N));
}

Cost parts_halving(const HostWorld& world, double S) {
  const Sizes n(world);
  return with_network(inside(n, 1, S * others(n.g)), n, static_cast<double>(tree_steps(world.hosts)), S * others(n.N));
}

Cost parts_ring(const HostWorld& world, double S) {
  const Sizes n(world);
  return flat(n, n.p - 1, S * others(n.p));
}

// ---- rooted ----

Cost broadcast_leader(const HostWorld& world, double S) {
  const Sizes n(world);
  const auto steps = static_cast<double>(tree_steps(world.hosts));
  return with_network(inside(n, 1, S), n, steps, S * steps);
}

Cost reduce_leader(const HostWorld& world, double S) {
  const Sizes n(world);
  const auto steps = static_cast<double>(tree_steps(world.hosts));
  return with_network(inside(n, 1, S * (n.g - 1)), n, steps, S * steps);
}

// A broadcast: slices are scattered over a tree of hosts and gathered around a ring; a reduction is the reverse of it.
Cost rooted_slices(const HostWorld& world, double S) {
  const Sizes n(world);
  return with_network(inside(n, 2, 2 * S * others(n.g)), n, static_cast<double>(tree_steps(world.hosts)) + n.N - 1,
                      2 * S * others(n.N));
}

Cost rooted_tree(const HostWorld& world, double S) {
  return by_distance(world, static_cast<double>(tree_steps(world.ranks())), S, 1);
}

// Gather and scatter: S is the root's buffer, whose adapter all parts of other hosts pass.
Cost root_parts_leader(const HostWorld& world, double S) {
  const Sizes n(world);
  return with_network(inside(n, 1, S / n.N * others(n.g)), n, static_cast<double>(tree_steps(world.hosts)),
                      S * others(n.N));
}

Cost root_parts_tree(const HostWorld& world, double S) {
  const Sizes n(world);
  Cost cost = by_distance(world, static_cast<double>(tree_steps(world.ranks())), 0, 1);
  cost.host_bytes = S / n.N * others(n.g);
  cost.network_bytes = S * others(n.N);
  return cost;
}

// ---- alltoall: S is what a rank sends ----

Cost alltoall_hosts(const HostWorld& world, double S) {
  const Sizes n(world);
  return with_network(inside(n, 2, 2 * S), n, n.N - 1, n.g * S * others(n.N));
}

Cost alltoall_pairs(const HostWorld& world, double S) {
  const Sizes n(world);
  return {n.g - 1, n.p - n.g, S * (n.g - 1) / n.p, n.g * S * others(n.N)};
}

// ---- barrier ----

Cost barrier_leader(const HostWorld& world, double) {
  const Sizes n(world);
  return with_network(inside(n, 2, 0), n, static_cast<double>(tree_steps(world.hosts)), 0);
}

Cost barrier_flat(const HostWorld& world, double) {
  return flat(Sizes(world), static_cast<double>(tree_steps(world.ranks())), 0);
}

constexpr Algorithm kAllreduce[] = {{"slices", allreduce_slices},  {"halving", allreduce_halving},
                                    {"leader", allreduce_leader},  {"chain", allreduce_chain},
                                    {"flat ring", allreduce_ring}, {"flat doubling", allreduce_doubling}};
constexpr Algorithm kParts[] = {{"slices", parts_slices}, {"halving", parts_halving}, {"flat ring", parts_ring}};
constexpr Algorithm kBroadcast[] = {
    {"slices", rooted_slices}, {"leader", broadcast_leader}, {"flat tree", rooted_tree}};
constexpr Algorithm kReduce[] = {{"slices", rooted_slices}, {"leader", reduce_leader}, {"flat tree", rooted_tree}};
constexpr Algorithm kRootParts[] = {{"leader", root_parts_leader}, {"flat tree", root_parts_tree}};
constexpr Algorithm kAlltoall[] = {{"by host", alltoall_hosts}, {"flat pairs", alltoall_pairs}};
constexpr Algorithm kBarrier[] = {{"leader", barrier_leader}, {"flat", barrier_flat}};

constexpr ModelledCollective kCollectives[] = {
    {"allreduce", kAllreduce, 2, 0, 3},  {"reduce_scatter", kParts, 0, 0, -1}, {"allgather", kParts, 0, 0, -1},
    {"broadcast", kBroadcast, 1, 0, -1}, {"reduce", kReduce, 1, 0, -1},        {"gather", kRootParts, 0, 0, -1},
    {"scatter", kRootParts, 0, 0, -1},   {"alltoall", kAlltoall, 0, 0, -1},    {"barrier", kBarrier, 0, 0, -1}};

}  // namespace

double Cost::seconds(const NetworkModel& model) const {
  return host_steps * model.host.alpha_s + host_bytes / model.host.bytes_per_second +
         network_steps * model.network.alpha_s + network_bytes / model.network.bytes_per_second * model.congestion;
}

const Algorithm& ModelledCollective::taken(double bytes) const {
  return algorithms[bytes <= kSmallBytes ? small : large];
}

std::span<const ModelledCollective> modelled_collectives() {
  return kCollectives;
}

const ModelledCollective* find_modelled(const std::string& name) {
  for (const ModelledCollective& one : kCollectives)
    if (name == one.name) return &one;
  return nullptr;
}

int64_t doubling_steps(int64_t n) {
  return floor_log2(n) + (std::has_single_bit(static_cast<uint64_t>(n)) ? 0 : 2);
}

int64_t tree_steps(int64_t n) {
  return floor_log2(n) + (std::has_single_bit(static_cast<uint64_t>(n)) ? 0 : 1);
}

int64_t Tree::most() const {
  return *std::max_element(std::begin(children), std::end(children));
}

// Level by level, each parent with as many children as the others.
Tree tree_of(int64_t hosts) {
  Tree tree;
  int64_t parents = 1, left = hosts - 1;
  while (left > 0) {
    const int64_t next = std::min(left, parents * kFanOut);
    tree.children[tree.levels++] = (next + parents - 1) / parents;
    left -= next;
    parents = next;
  }
  return tree;
}

StartCost start_cost(const HostWorld& world, const NetworkModel& model) {
  const Sizes n(world);
  const double handshake = 2 * kHandshakeTrips * model.network.alpha_s;
  StartCost cost;
  cost.tree = tree_of(world.hosts);
  cost.table_bytes = n.p * kTableEntryBytes;
  cost.all_bytes = cost.table_bytes * (n.N - 1);
  cost.local_s = n.g * kJoinSeconds;
  if (n.network) cost.root_s = handshake + (n.N - 1) * kJoinSeconds;
  const double copy_s = cost.table_bytes / model.network.bytes_per_second * model.congestion;
  for (int64_t level = 0; level < cost.tree.levels; ++level) {
    const auto children = static_cast<double>(cost.tree.children[level]);
    cost.tree_s += handshake + children * kJoinSeconds;
    cost.table_s += model.network.alpha_s + children * copy_s;
    cost.acknowledged_s += model.network.alpha_s + children * kMessageSeconds;
  }
  return cost;
}

ControlCost control_cost(const HostWorld& world, const NetworkModel& model) {
  const Sizes n(world);
  const Tree tree = tree_of(world.hosts);
  ControlCost cost;
  cost.agreement_s = n.g > 1 ? 2 * model.host.alpha_s : 0;
  for (int64_t level = 0; level < tree.levels; ++level)
    cost.agreement_s += 2 * (model.network.alpha_s + static_cast<double>(tree.children[level]) * kMessageSeconds);
  cost.messages = 2 * (n.N - 1);
  if (!n.network) return cost;
  cost.silent_s = kMissedBeats * kBeatSeconds + 2 * model.network.alpha_s;
  cost.beats = 2 * (n.N - 1) / kBeatSeconds;  // each host to two parents
  cost.most_beats = 2 * tree.most();
  cost.most_sockets = tree.most() + 2;
  return cost;
}

}  // namespace gsel::cli
