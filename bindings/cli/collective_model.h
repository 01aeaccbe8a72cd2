// collective_model.h: costs of collectives over many hosts: the library's own algorithms between hosts, each with the
// agreement on the call before it (network_model.h), and other algorithms for comparison. docs/simulate.md has the
// formulas. Sums are of 4-byte types such as f32, in the order of ranks; the transport is one that is not prompt, which
// is any except MPI; the root is rank 0. Does not know how the costs are printed.
#pragma once

#include <span>
#include <string>

#include "network_model.h"

namespace gsel::cli {

struct Algorithm {
  const char* name;  // for the library's algorithms, as in gsel_comm_explain
  Cost (*cost)(const HostWorld& world, double bytes);
  bool is_way = false;                                                        // one of the library's algorithms
  enum class Order { other, of_ranks, of_ranks_alone } order = Order::other;  // of sums; alone: one rank per host
  bool is_exact(const HostWorld& world) const {
    return order == Order::of_ranks || (order == Order::of_ranks_alone && world.each == 1);
  }
};

struct ModelledCollective {
  const char* name;
  std::span<const Algorithm> algorithms;
  double (*payload)(const HostWorld& world, double bytes);  // most bytes of one rank in the agreement
  enum class Kind { allreduce, other_reduction, to_all, in_parts } kind;
  // The library's algorithm for a call; nullptr on one host, where the library has others.
  const Algorithm* taken(const HostWorld& world, double bytes) const;
};

std::span<const ModelledCollective> modelled_collectives();
const ModelledCollective* find_modelled(const std::string& name);

// Copies of the library's constants; unit_network_model_library compares them.
constexpr double kSmallBytes = 4096, kSmallInAllBytes = 131072;  // from one rank, and from all: sent with the agreement
constexpr double kMostDirectBytes = 524288;                      // from all ranks together
constexpr uint64_t kMostMeasuredHosts = 8;  // beyond it reductions take the way of the least cost, at these prices:
constexpr uint64_t kStepPs = 20'000'000, kMessagePs = 5'000'000, kNetworkBytePs = 190, kMemoryBytePs = 100;
constexpr uint64_t kMostAtFirstBytes = 1 << 24;                                            // from all ranks together
constexpr uint64_t kLeastChunkBytes = 65536, kMostChunkBytes = 524288, kChunksOfLane = 8;  // of the chain algorithm
constexpr uint64_t kLeastOfManyBytes = 16384;  // the same on more than kMostMeasuredHosts hosts
uint64_t chunk_bytes(uint64_t lane_bytes, uint64_t hosts, uint64_t each);
constexpr double kPieceChunkBytes = 524288;  // of the two-level algorithm
constexpr double kPackedBytes = 65536;       // inputs of a host for a slice that go in one message
constexpr double kElementBytes = 4;

}  // namespace gsel::cli
