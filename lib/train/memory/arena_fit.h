// train/memory/arena_fit.h: places buffers in one arena. Buffers that live at the same time do not overlap. Does not
// know what they hold.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace gsel {

struct Buffer {
  uint64_t bytes = 0;           // a multiple of kTensorAlign, at least one
  int32_t first = 0, last = 0;  // instructions, both included
  uint64_t offset = 0;          // set by fit
};

// The most bytes that live at a time over [0, length): a lower bound for the arena.
uint64_t most_live(const std::vector<Buffer>& buffers, size_t length);

// Sets the offsets; returns the arena's bytes.
uint64_t fit(std::vector<Buffer>& buffers, size_t length);

}  // namespace gsel
