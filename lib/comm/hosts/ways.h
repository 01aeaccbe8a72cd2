// comm/hosts/ways.h: the algorithm ("way") of a collective over several hosts. It depends on the size and on how the
// ranks are spread over hosts, and is the same on every rank. Does not know how the ways work: small_calls.cc,
// direct.cc, two_levels.cc, chain.cc, hosts_calls.cc.
#pragma once

#include <cstddef>
#include <cstdint>

#include "comm/shm/call/call.h"

namespace gsel::hosts {

enum class Way { small, direct, two_levels, chain, lanes, slices };
constexpr size_t kWays = 6;
const char* way_name(Way way);  // as in gsel_comm_explain

// How the ranks are spread; the same on every rank.
struct Spread {
  size_t ranks, hosts, here;  // here: on this host
  bool is_in_blocks;          // every host has the same number of consecutive ranks
  bool has_frames;            // of a prompt transport
  int32_t order;              // of reductions, GSEL_ORDER_*
};
Way way_of(const shm::Call& call, const Spread& spread);
// A small allreduce without copies, if each rank is alone on its host.
bool goes_in_frames(const shm::Call& call, const Spread& spread);

// Limits of small calls: the payload of one rank that goes by the tree, in frames, and in frames for an allreduce.
constexpr uint64_t kSmallBytes = 4096, kSmallInFrames = 8192, kSmallSum = 16384;
constexpr uint64_t kSmallInAll = 131072;  // of all ranks together: beyond it each rank should get only what it needs

constexpr uint64_t kMostDirectBytes = 1 << 19;  // of all ranks together

constexpr size_t kMostChainHosts = 32;
constexpr uint64_t kLeastChunkBytes = 65536, kMostChunkBytes = 524288, kChunksOfLane = 8;

constexpr uint64_t kSegmentBytes = 524288;  // of a piece in two_levels.cc

}  // namespace gsel::hosts
