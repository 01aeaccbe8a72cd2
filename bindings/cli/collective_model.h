// collective_model.h: what collectives over many hosts cost, by the ways that the library has between hosts, each with
// the agreement on the call that stands before it (network_model.h), and by other algorithms to compare them with.
// docs/simulate.md has the forms. Sums are of f32 (or whatever has 4 bytes), in the order of ranks; the transport is
// one that is not prompt, which is any but an MPI; the root is rank 0. Does not know: how it is printed.
#pragma once

#include <span>
#include <string>

#include "network_model.h"

namespace gsel::cli {

struct Algorithm {
  const char* name;  // of a way, as gsel_comm_explain tells it
  Cost (*cost)(const HostWorld& world, double bytes);
  bool is_way = false;                                                        // of the library
  enum class Order { other, of_ranks, of_ranks_alone } order = Order::other;  // of sums; alone: one rank a host
  bool is_exact(const HostWorld& world) const {
    return order == Order::of_ranks || (order == Order::of_ranks_alone && world.each == 1);
  }
};

struct ModelledCollective {
  const char* name;
  std::span<const Algorithm> algorithms;
  double (*payload)(const HostWorld& world, double bytes);  // that one rank gives at most
  enum class Kind { allreduce, other_reduction, to_all, in_parts } kind;
  // What a call takes; nullptr on one host, where there are other ways.
  const Algorithm* taken(const HostWorld& world, double bytes) const;
};

std::span<const ModelledCollective> modelled_collectives();
const ModelledCollective* find_modelled(const std::string& name);

// The same as in the library, which unit_network_model_library compares.
constexpr double kSmallBytes = 4096, kSmallInAllBytes = 131072;  // that one rank gives, and all do: with the agreement
constexpr double kMostDirectBytes = 524288;                      // of all ranks together
constexpr int64_t kMostChainHosts = 32;
constexpr double kLeastChunkBytes = 65536, kMostChunkBytes = 524288, kChunksOfLane = 8;  // of the chain
constexpr double kSegmentBytes = 524288;                                                 // of two levels
constexpr double kElementBytes = 4;

}  // namespace gsel::cli
