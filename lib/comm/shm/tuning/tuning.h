// comm/shm/tuning/tuning.h: the sizes at which protocols change, in bytes per rank, and how long calls take; from a
// file that `gsel tune` measured on this machine, else built in. Does not know the protocols.
#pragma once

#include <gsel/comm.h>

#include <cstddef>
#include <cstdint>

namespace gsel::shm {

constexpr int32_t kMaxRanks = 256;  // of one host

struct Tuning {
  // Private buffers, read across processes instead of staged. Reading by the kernel is one copy, but it leaves who is
  // read idle: staging wins where both sides can work at once, as in an allreduce and a long broadcast.
  size_t single_copy_from = size_t{128} << 10;
  size_t single_copy_broadcast_from = size_t{64} << 10;
  size_t single_copy_broadcast_to = size_t{4} << 20;
  size_t single_copy_gather_from = size_t{16} << 10;
  size_t gather_slots_to = size_t{8} << 10;
  size_t single_copy_allreduce_from = SIZE_MAX;
  size_t stream_from = size_t{8} << 20;    // stores past the caches from here
  size_t chunk_bytes = size_t{128} << 10;  // of staged copies: one rank reads a chunk while another writes the next
  size_t pair_chunk_bytes = size_t{256} << 10;  // of staged allreduces of two ranks
};

// For so many ranks. Ranks of one communicator must agree, so only its founder asks; the others find it in the arena.
Tuning tuning_for(int32_t ranks);

// Seconds of a call whose larger buffer has so many bytes, between the sizes measured; 0: not known.
double predicted_seconds(int32_t ranks, gsel_collective_kind kind, uint64_t bytes);

}  // namespace gsel::shm
