// collective_costs.h: costs of single algorithms, for the table of collective_model.cc. S: bytes of the larger buffer
// of a rank. Does not know which algorithm a call uses.
#pragma once

#include "network_model.h"

namespace gsel::cli {

// ---- the library's own: way_costs.cc ----

Cost small_allreduce(const HostWorld& world, double S);
Cost small_reduce_scatter(const HostWorld& world, double S);
Cost small_to_all(const HostWorld& world, double S);  // a shard from each rank
Cost small_call(const HostWorld& world, double S);    // all bytes come from one rank
Cost at_first(const HostWorld& world, double S);      // a reduction
Cost direct_allreduce(const HostWorld& world, double S);
Cost two_level_allreduce(const HostWorld& world, double S);
Cost two_level_reduce(const HostWorld& world, double S);
Cost two_level_reduce_scatter(const HostWorld& world, double S);
Cost chain_allreduce(const HostWorld& world, double S);
Cost chain_reduce(const HostWorld& world, double S);
Cost chain_reduce_scatter(const HostWorld& world, double S);
Cost host_slices_allreduce(const HostWorld& world, double S);
Cost host_slices_reduce(const HostWorld& world, double S);
Cost host_slices_reduce_scatter(const HostWorld& world, double S);
Cost slices_reduce_scatter(const HostWorld& world, double S);
Cost lanes_allgather(const HostWorld& world, double S);
Cost lanes_broadcast(const HostWorld& world, double S);
Cost pairs_of_all(const HostWorld& world, double S);  // allgather or alltoall
Cost pairs_broadcast(const HostWorld& world, double S);
Cost pairs_rooted(const HostWorld& world, double S);

// ---- other algorithms, without an agreement on the call: other_costs.cc ----

Cost rings_allreduce(const HostWorld& world, double S);
Cost halving_allreduce(const HostWorld& world, double S);
Cost leader_allreduce(const HostWorld& world, double S);
Cost flat_ring_allreduce(const HostWorld& world, double S);
Cost flat_doubling_allreduce(const HostWorld& world, double S);
Cost rings_parts(const HostWorld& world, double S);  // reduce_scatter or allgather
Cost halving_parts(const HostWorld& world, double S);
Cost flat_ring_parts(const HostWorld& world, double S);
Cost leader_broadcast(const HostWorld& world, double S);
Cost leader_reduce(const HostWorld& world, double S);
Cost rings_rooted(const HostWorld& world, double S);  // broadcast or reduce
Cost flat_tree_rooted(const HostWorld& world, double S);
Cost leader_root_parts(const HostWorld& world, double S);  // gather or scatter
Cost flat_tree_root_parts(const HostWorld& world, double S);
Cost hosts_alltoall(const HostWorld& world, double S);
Cost flat_pairs_alltoall(const HostWorld& world, double S);
Cost leader_barrier(const HostWorld& world, double S);
Cost flat_barrier(const HostWorld& world, double S);

}  // namespace gsel::cli
