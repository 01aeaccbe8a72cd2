// base/align.h: sizes rounded up to whole units.
#pragma once

#include <cstdint>

namespace gsel {

constexpr uint64_t round_up(uint64_t bytes, uint64_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

// Alignment of tensors: a cache line, and the widest vector.
constexpr uint64_t kTensorAlign = 64;

}  // namespace gsel
