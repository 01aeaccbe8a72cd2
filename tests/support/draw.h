// support/draw.h: numbers drawn at random, the same for the same seed.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

namespace gsel::test {

class Draw {
 public:
  explicit Draw(uint32_t seed) : engine_(seed) {}
  // From low to high, both included.
  int32_t from(int32_t low, int32_t high) {
    return low + static_cast<int32_t>(engine_() % static_cast<uint32_t>(high - low + 1));
  }
  bool chance(int32_t percent) { return from(1, 100) <= percent; }
  template <class T>
  const T& of(const std::vector<T>& items) {
    return items[static_cast<size_t>(from(0, static_cast<int32_t>(items.size()) - 1))];
  }

 private:
  std::mt19937 engine_;
};

}  // namespace gsel::test
