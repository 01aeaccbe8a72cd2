// comm/shm/tuning.h: the sizes at which protocols change, in bytes per rank. Refuses to know where they come from.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gsel::shm {

struct Tuning {
  size_t single_copy_from = size_t{256} << 10;  // private buffers: below, through staging memory
  size_t stream_from = size_t{8} << 20;         // stores past the caches from here
  size_t chunk_bytes = size_t{64} << 10;        // of staged copies one rank reads while another writes
};

}  // namespace gsel::shm
