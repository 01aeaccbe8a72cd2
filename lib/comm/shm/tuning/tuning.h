// comm/shm/tuning/tuning.h: the sizes at which protocols change, in bytes per rank, and how long calls take: from a
// file that `gsel tune` has written on this machine, else built in. Does not know the protocols.
#pragma once

#include <gsel/comm.h>

#include <cstddef>
#include <cstdint>

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

}  // namespace gsel::shm
