// other_costs.cc: costs of algorithms that the library does not have between hosts; see collective_costs.h. N hosts
// with g ranks each, p = N g; S bytes. In each step between hosts a rank writes one message and reads one.
#include <bit>

#include "collective_costs.h"

namespace gsel::cli {
namespace {

int64_t floor_log2(int64_t n) {
  return static_cast<int64_t>(std::bit_width(static_cast<uint64_t>(n))) - 1;
}

// Steps of recursive doubling: log2(n), and two more if n is no power of two.
int64_t doubling_steps(int64_t n) {
  return floor_log2(n) + (std::has_single_bit(static_cast<uint64_t>(n)) ? 0 : 2);
}

int64_t tree_steps(int64_t n) {  // log2(n), rounded up
  return floor_log2(n) + (std::has_single_bit(static_cast<uint64_t>(n)) ? 0 : 1);
}

// The fraction of data on the other n - 1.
double others(double n) {
  return (n - 1) / n;
}

// Work within hosts before and after the part between hosts, if hosts have several ranks: `steps` in memory.
Cost inside(const WorldSize& n, double steps, double bytes) {
  return n.g > 1 ? Cost{steps, 0, bytes, 0, 0} : Cost{};
}

Cost with_network(Cost cost, const WorldSize& n, double steps, double bytes) {
  if (n.network) cost.network_steps = steps, cost.network_bytes = bytes, cost.messages = 2 * steps;
  return cost;
}

// For algorithms that ignore hosts: each step waits for the slowest link, which is the network if there is one.
Cost flat(const WorldSize& n, double steps, double bytes) {
  return n.network ? Cost{0, steps, 0, bytes, 2 * steps} : Cost{steps, 0, bytes, 0, 0};
}

// Exchanges at doubling distances: the first are within a host. `copies` of the bytes pass an adapter at the same time.
Cost by_distance(const HostWorld& world, double steps, double bytes, double copies) {
  const double near = world.hosts > 1 ? static_cast<double>(floor_log2(world.each)) : steps;
  return {near, steps - near, near * bytes, (steps - near) * copies * bytes, 2 * (steps - near)};
}

}  // namespace

// ---- allreduce ----

Cost rings_allreduce(const HostWorld& world, double S) {
  const WorldSize n(world);
  return with_network(inside(n, 2, 2 * S * others(n.g)), n, 2 * (n.N - 1), 2 * S * others(n.N));
}

// Between hosts by recursive halving and doubling. Hosts beyond a power of two send their data to another host and get
// the result.
Cost halving_allreduce(const HostWorld& world, double S) {
  const WorldSize n(world);
  const int64_t log = floor_log2(world.hosts);
  const double power = static_cast<double>(int64_t{1} << log), beyond = power < n.N ? 2 : 0;
  return with_network(inside(n, 2, 2 * S * others(n.g)), n, 2 * static_cast<double>(log) + beyond,
                      2 * S * others(power) + beyond * S);
}

Cost leader_allreduce(const HostWorld& world, double S) {
  const WorldSize n(world);
  const auto steps = static_cast<double>(doubling_steps(world.hosts));
  return with_network(inside(n, 2, S * (n.g - 1) + S), n, steps, S * steps);
}

Cost flat_ring_allreduce(const HostWorld& world, double S) {
  const WorldSize n(world);
  return flat(n, 2 * (n.p - 1), 2 * S * others(n.p));
}

Cost flat_doubling_allreduce(const HostWorld& world, double S) {
  return by_distance(world, static_cast<double>(doubling_steps(world.ranks())), S, static_cast<double>(world.each));
}

// ---- reduce_scatter and allgather: S is the longer buffer ----

Cost rings_parts(const HostWorld& world, double S) {
  const WorldSize n(world);
  return with_network(inside(n, 1, S * others(n.g)), n, n.N - 1, S * others(n.N));
}

Cost halving_parts(const HostWorld& world, double S) {
  const WorldSize n(world);
  return with_network(inside(n, 1, S * others(n.g)), n, static_cast<double>(tree_steps(world.hosts)), S * others(n.N));
}

Cost flat_ring_parts(const HostWorld& world, double S) {
  const WorldSize n(world);
  return flat(n, n.p - 1, S * others(n.p));
}

// ---- rooted ----

Cost leader_broadcast(const HostWorld& world, double S) {
  const WorldSize n(world);
  const auto steps = static_cast<double>(tree_steps(world.hosts));
  return with_network(inside(n, 1, S), n, steps, S * steps);
}

Cost leader_reduce(const HostWorld& world, double S) {
  const WorldSize n(world);
  const auto steps = static_cast<double>(tree_steps(world.hosts));
  return with_network(inside(n, 1, S * (n.g - 1)), n, steps, S * steps);
}

// Broadcast: chunks are scattered over a tree of hosts and gathered around a ring; a reduction is the reverse.
Cost rings_rooted(const HostWorld& world, double S) {
  const WorldSize n(world);
  return with_network(inside(n, 2, 2 * S * others(n.g)), n, static_cast<double>(tree_steps(world.hosts)) + n.N - 1,
                      2 * S * others(n.N));
}

Cost flat_tree_rooted(const HostWorld& world, double S) {
  return by_distance(world, static_cast<double>(tree_steps(world.ranks())), S, 1);
}

// Gather and scatter: S is the root's buffer, and the shards of all other hosts pass its adapter.
Cost leader_root_parts(const HostWorld& world, double S) {
  const WorldSize n(world);
  return with_network(inside(n, 1, S / n.N * others(n.g)), n, static_cast<double>(tree_steps(world.hosts)),
                      S * others(n.N));
}

Cost flat_tree_root_parts(const HostWorld& world, double S) {
  const WorldSize n(world);
  Cost cost = by_distance(world, static_cast<double>(tree_steps(world.ranks())), 0, 1);
  cost.host_bytes = S / n.N * others(n.g);
  cost.network_bytes = S * others(n.N);
  return cost;
}

// ---- alltoall: S is what a rank sends ----

Cost hosts_alltoall(const HostWorld& world, double S) {
  const WorldSize n(world);
  return with_network(inside(n, 2, 2 * S), n, n.N - 1, n.g * S * others(n.N));
}

Cost flat_pairs_alltoall(const HostWorld& world, double S) {
  const WorldSize n(world);
  return {n.g - 1, n.far, S * (n.g - 1) / n.p, n.g * S * others(n.N), 2 * n.far};
}

// ---- barrier ----

Cost leader_barrier(const HostWorld& world, double) {
  const WorldSize n(world);
  return with_network(inside(n, 2, 0), n, static_cast<double>(tree_steps(world.hosts)), 0);
}

Cost flat_barrier(const HostWorld& world, double) {
  return flat(WorldSize(world), static_cast<double>(tree_steps(world.ranks())), 0);
}

}  // namespace gsel::cli
