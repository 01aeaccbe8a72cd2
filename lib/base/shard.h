// base/shard.h: the shard that a rank has of what several ranks divide: a range of n items, or of one dimension of a
// tensor, in equal blocks. Pure arithmetic; does not know who divides what, and why.
#pragma once

#include <gsel/types.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace gsel {

// The one rule by which n items are split in parts; everything uneven in gsel follows it.
constexpr gsel_range shard_range(int64_t n, int64_t parts, int64_t index) {
  if (n < 0 || parts < 1 || index < 0 || index >= parts) return {0, 0};
  const int64_t base = n / parts, extra = n % parts;
  const int64_t begin = index * base + std::min(index, extra);
  return {begin, begin + base + (index < extra ? 1 : 0)};
}

// gsel_shard, with what C++ wants of it.
struct Shard {
  int32_t dim = -1;  // -1: all of it
  int32_t blocks = 1;
  int64_t begin = 0, end = 0, whole = 0;  // elements of a block

  bool is_whole() const { return dim < 0; }
  int64_t size() const { return end - begin; }
  gsel_shard view() const { return {dim, blocks, begin, end, whole}; }
  bool operator==(const Shard&) const = default;
};

// Placement of a value on the axis whose ranks share layers; its gradient has the dual one.
enum class Placement : uint8_t {
  replicate,  // alike on every rank; so is its gradient
  copy,       // alike on every rank, read by layers that have shards of other values: its gradient is partial
  shard,      // a shard each; so is its gradient
  partial,    // to be added up; its gradient is whole
};

// Bounds of a shard for each weight, of n items, in proportion to the weights: largest remainders first, then lower
// numbers. Every shard has one item or more; n is no less than the number of weights.
std::vector<int64_t> shard_bounds(int64_t n, std::span<const double> weights);

// A shard as memory: rows of equal length at equal distances in the whole tensor; the shard itself has them side by
// side.
struct ShardRows {
  int64_t count = 0;   // rows
  int64_t length = 0;  // of a row, in elements
  int64_t first = 0;   // of the first one in the whole tensor
  int64_t stride = 0;  // from one to the next in the whole tensor
};
// dims: of the whole tensor, those before and behind shard.dim as they are here.
ShardRows rows_of(std::span<const int64_t> dims, const Shard& shard);

// dims with the shard's length in place of its dimension.
std::vector<int64_t> local_dims(std::vector<int64_t> dims, const Shard& shard);

}  // namespace gsel
