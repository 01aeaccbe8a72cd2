// comm/shm/tuning.h: the sizes at which protocols change, in bytes per rank, and how long calls take; from a file that
// `gsel tune` measured on this machine, else built in. Refuses to know the protocols.
#pragma once

#include <gsel/comm.h>

#include <cstddef>
#include <cstdint>

namespace gsel::shm {

struct Tuning {
  size_t single_copy_from = size_t{256} << 10;  // private buffers: below, through staging memory
  size_t stream_from = size_t{8} << 20;         // stores past the caches from here
  size_t chunk_bytes = size_t{64} << 10;        // of staged copies one rank reads while another writes
};

// For so many ranks. Ranks of one communicator must agree, so only its founder asks; the others find it in the arena.
Tuning tuning_for(int32_t ranks);

// Seconds of a call whose larger buffer has so many bytes, between the sizes measured; 0: not known.
double predicted_seconds(int32_t ranks, gsel_collective_kind kind, uint64_t bytes);

}  // namespace gsel::shm
