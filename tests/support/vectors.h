// support/vectors.h: for tests of vector code: numbers that are the same everywhere, the instruction sets there are,
// and equality of bits.
#pragma once

#include <algorithm>
#include <vector>

#include "base/error.h"  // before cmocka, which takes the name fail
#include "device/formulas/floats.h"
#include "device/host/reduce/kernels.h"
#include "support/check.h"

namespace gsel_test {

inline uint64_t next_random(uint64_t& state) {  // splitmix64
  uint64_t z = state += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// In (-1, 1).
inline float random_float(uint64_t& state) {
  return static_cast<float>(static_cast<int64_t>(next_random(state) >> 40) - (1 << 23)) * 0x1p-23f;
}

inline std::vector<gsel::host::Isa> available() {
  std::vector<gsel::host::Isa> result;
  for (const gsel::host::Isa isa : gsel::host::kIsas)
    if (gsel::host::has_isa(isa))
      result.push_back(isa);
    else
      print_message("instruction set %d is not there and was not tried\n", static_cast<int>(isa));
  return result;
}

inline bool same(const std::vector<float>& a, const std::vector<float>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](float x, float y) { return gsel::bits_of(x) == gsel::bits_of(y); });
}

}  // namespace gsel_test
