// base/shard.h: the one rule by which n items are split in parts; everything uneven in gsel follows it.
#pragma once

#include <gsel/types.h>

#include <algorithm>

namespace gsel {

constexpr gsel_range shard_range(int64_t n, int64_t parts, int64_t index) {
  if (n < 0 || parts < 1 || index < 0 || index >= parts) return {0, 0};
  const int64_t base = n / parts, extra = n % parts;
  const int64_t begin = index * base + std::min(index, extra);
  return {begin, begin + base + (index < extra ? 1 : 0)};
}

}  // namespace gsel
