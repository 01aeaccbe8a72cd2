// comm/hosts/ways.h: by which way a collective over several hosts travels, which depends on its size and on how the
// ranks are spread, alike on every rank. Does not know how the ways work: small_calls.cc, direct.cc, two_levels.cc,
// chain.cc, hosts_calls.cc.
#pragma once

#include <cstddef>
#include <cstdint>

#include "comm/shm/call/call.h"

namespace gsel::hosts {

enum class Way { small, direct, two_levels, chain, lanes, slices };
constexpr size_t kWays = 6;
const char* way_name(Way way);  // as gsel_comm_explain tells it

// What all ranks know of each other.
struct Spread {
  size_t ranks, hosts, here;  // here: on this host
  bool is_in_blocks;          // every host has as many, in a row
  bool has_frames;            // of a prompt transport
  int32_t order;              // of sums
};
Way way_of(const shm::Call& call, const Spread& spread);
// A small one, without copies, where each rank is alone on its host.
bool goes_in_frames(const shm::Call& call, const Spread& spread);

// Of small calls: that one rank gives, by the tree and in frames, there also for a sum that all get, and
constexpr uint64_t kSmallBytes = 4096, kSmallInFrames = 8192, kSmallSum = 16384;
constexpr uint64_t kSmallInAll = 131072;  // all do: past that it pays that each gets only what it needs

constexpr uint64_t kMostDirectBytes = 1 << 19;  // of all ranks together

constexpr size_t kMostChainHosts = 32;  // behind one another
constexpr uint64_t kLeastChunkBytes = 65536, kMostChunkBytes = 524288, kChunksOfLane = 8;

constexpr uint64_t kSegmentBytes = 524288;  // of a piece of two levels, which go one after the other

}  // namespace gsel::hosts
