// device/formulas/philox.h: the numbers of gsel_random_uniform (base/random.cc), which kernels of devices draw as well.
#pragma once

#include <cstdint>

#include "device/formulas/floats.h"

namespace gsel {

struct PhiloxBlock {
  uint32_t of[4];
};

GSEL_INLINE PhiloxBlock philox_block(uint64_t key, uint64_t counter) {
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  PhiloxBlock x{{static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32), 0, 0}};
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53} * x.of[0], p1 = uint64_t{0xCD9E8D57} * x.of[2];
    x = {{static_cast<uint32_t>(p1 >> 32) ^ x.of[1] ^ k0, static_cast<uint32_t>(p1),
          static_cast<uint32_t>(p0 >> 32) ^ x.of[3] ^ k1, static_cast<uint32_t>(p0)}};
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return x;
}

// [0, 1), 24 bits.
GSEL_INLINE float unit_of(uint32_t bits) {
  return static_cast<float>(bits >> 8) * (1.0f / 16777216.0f);
}

GSEL_INLINE uint64_t key_of(const PhiloxBlock& block) {
  return uint64_t{block.of[1]} << 32 | block.of[0];
}

}  // namespace gsel
