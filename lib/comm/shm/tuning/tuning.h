// comm/shm/tuning/tuning.h: the sizes at which protocols change, in bytes per rank, and how long calls take: from a
// file that `gsel tune` has written on this machine (docs/tuning.md), else built in. Does not know the protocols.
#pragma once

#include <gsel/comm.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gsel::shm {

constexpr int32_t kMaxRanks = 256;  // of one host

struct Tuning {
  // When private buffers are read across processes instead of staged. The kernel copies once, but the rank that is read
  // is idle. Staging is faster where both sides can work at the same time, as in an allreduce or a long broadcast.
  size_t single_copy_from = size_t{128} << 10;
  size_t single_copy_broadcast_from = size_t{64} << 10;
  size_t single_copy_broadcast_to = size_t{4} << 20;
  size_t single_copy_gather_from = size_t{16} << 10;
  size_t gather_slots_to = size_t{8} << 10;
  size_t single_copy_allreduce_from = SIZE_MAX;
  size_t stream_from = size_t{8} << 20;    // non-temporal stores from this size on
  size_t chunk_bytes = size_t{128} << 10;  // of staged copies: one rank reads a chunk while another writes the next
  size_t pair_chunk_bytes = size_t{256} << 10;  // of staged allreduces of two ranks
};

// Only the founder of a communicator calls it, since ranks must agree; the others read the result from the arena.
Tuning tuning_for(int32_t ranks);

// Predicted time of a call whose larger buffer has `bytes`, interpolated between measured sizes; 0: unknown.
double predicted_seconds(int32_t ranks, gsel_collective_kind kind, uint64_t bytes);

struct Timing {
  uint64_t bytes;
  double seconds;
};

struct TunedWorld {
  int32_t ranks = 0;
  Tuning tuning;
  std::array<std::vector<Timing>, GSEL_COLLECTIVE_KINDS> timings;  // by rising bytes
};

// Sorted by ranks. GSEL_ERR_PARSE or GSEL_ERR_CONFIG with file, line and key, also for a file of another version or of
// a processor other than `cpu`.
std::vector<TunedWorld> parse_tuning(std::string_view text, const std::string& file, const std::string& cpu);

// Interpolates linearly in the logarithms between the two sizes around `bytes`; proportional beyond the last. 0: no
// timings.
double interpolated_seconds(const std::vector<Timing>& timings, uint64_t bytes);

// The processor's model according to the kernel.
std::string cpu_model();

}  // namespace gsel::shm
