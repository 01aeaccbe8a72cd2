// comm/hosts/ways.h: the algorithm ("way") of a collective over several hosts. It depends on the size and on how the
// ranks are spread over hosts, and is the same on every rank. Does not know how the ways work: small_calls.cc,
// direct.cc, two_levels.cc, chain.cc, hosts_calls.cc.
#pragma once

#include <cstddef>
#include <cstdint>

#include "comm/shm/call/call.h"

namespace gsel::hosts {

enum class Way { small, at_first, direct, two_levels, chain, host_slices, lanes, slices };
constexpr size_t kWays = 8;
const char* way_name(Way way);  // as in gsel_comm_explain

// How the ranks are spread; the same on every rank.
struct Spread {
  size_t ranks, hosts, most;  // most: ranks on one host
  bool is_in_blocks;          // every host has the same number of consecutive ranks
  bool is_consecutive;        // every host has consecutive ranks, however many
  bool has_frames;            // of a prompt transport
  int32_t order;              // of reductions, GSEL_ORDER_*
  bool is_alone() const { return ranks == hosts; }
};
Way way_of(const shm::Call& call, const Spread& spread);
// A small allreduce without copies, if each rank is alone on its host.
bool goes_in_frames(const shm::Call& call, const Spread& spread);

// Limits of small calls: the payload of one rank that goes by the tree, in frames, and in frames for an allreduce.
constexpr uint64_t kSmallBytes = 4096, kSmallInFrames = 8192, kSmallSum = 16384;
constexpr uint64_t kSmallInAll = 131072;  // of all ranks together: beyond it each rank should get only what it needs

constexpr uint64_t kMostDirectBytes = 1 << 19;  // of all ranks together

// Up to so many hosts reductions take ways by limits that were measured, and beyond it the way of the least cost.
constexpr size_t kMostMeasuredHosts = 8;
constexpr uint64_t kMostAtFirstBytes = 1 << 24;  // of all ranks together, in the memory of the first rank
// Prices in picoseconds: of a step between hosts, of a message, of a byte between hosts, and of one in memory.
// Integers, so that every rank gets the same costs.
constexpr uint64_t kStepPs = 20'000'000, kMessagePs = 5'000'000, kNetworkBytePs = 190, kMemoryBytePs = 100;

// Chunks of chain.cc. Between few hosts an eighth of a lane; between many hosts small enough that the last host starts
// early.
constexpr uint64_t kLeastChunkBytes = 65536, kMostChunkBytes = 524288, kChunksOfLane = 8;
constexpr uint64_t kLeastPromptBytes = 262144;  // of a prompt transport, which has a handshake for each long message
constexpr uint64_t kLeastOfManyBytes = 16384;   // between more than kMostMeasuredHosts hosts
uint64_t chunk_bytes(uint64_t lane_bytes, size_t hosts, size_t most_on_a_host, bool is_prompt);

// Of two_levels.cc. kPieceChunkBytes: of a piece, sent at a time. kPackedBytes: up to it the inputs of a host for a
// piece are one message.
constexpr uint64_t kPieceChunkBytes = 524288, kPackedBytes = 65536;

}  // namespace gsel::hosts
