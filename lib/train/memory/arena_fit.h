// train/memory/arena_fit.h: places buffers that live for a part of a step in one arena, so that buffers that live at
// the same time do not overlap. Does not know what they hold.
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

// Most bytes that live at once over [0, length): no arena can be smaller.
uint64_t most_live(const std::vector<Buffer>& buffers, size_t length);

// Sets the offsets; returns the arena's bytes.
uint64_t fit(std::vector<Buffer>& buffers, size_t length);

}  // namespace gsel
