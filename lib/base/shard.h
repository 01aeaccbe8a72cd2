// base/shard.h: the shard of each rank when several ranks divide n items, or one dimension of a tensor in equal blocks.
// Pure arithmetic; does not know what is divided, or why.
#pragma once

#include <gsel/types.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace gsel {

// Shard `index` of n items in `parts` shards. Every uneven division in gsel follows this rule.
constexpr gsel_range shard_range(int64_t n, int64_t parts, int64_t index) {
  if (n < 0 || parts < 1 || index < 0 || index >= parts) return {0, 0};
  const int64_t base = n / parts, extra = n % parts;
  const int64_t begin = index * base + std::min(index, extra);
  return {begin, begin + base + (index < extra ? 1 : 0)};
}

// gsel_shard with member functions.
struct Shard {
  int32_t dim = -1;  // -1: the whole tensor
  int32_t blocks = 1;
  int64_t begin = 0, end = 0, whole = 0;  // elements of a block

  bool is_whole() const { return dim < 0; }
  int64_t size() const { return end - begin; }
  gsel_shard view() const { return {dim, blocks, begin, end, whole}; }
  bool operator==(const Shard&) const = default;
};

// Placement of a value on the axis whose ranks share layers; its gradient has the dual one.
enum class Placement : uint8_t {
  replicate,  // the same on every rank; the gradient too
  copy,       // the same on every rank, but used by layers that have shards of other values: the gradient is partial
  shard,      // one shard per rank; the gradient too
  partial,    // to be summed over the ranks; the gradient is whole
};

// Divides n items in one shard per weight, in proportion to the weights, and returns the shards' bounds. Rounding
// favours the largest remainder, then the lower index. Every shard has at least one item; n must be at least the number
// of weights.
std::vector<int64_t> shard_bounds(int64_t n, std::span<const double> weights);
// The same, but a rank may get no items.
std::vector<int64_t> shard_items(int64_t n, std::span<const double> weights);

// The memory of a shard: rows of equal length at equal distances in the whole tensor. In the shard itself the rows are
// contiguous.
struct ShardRows {
  int64_t count = 0;   // rows
  int64_t length = 0;  // elements per row
  int64_t first = 0;   // offset of the first row in the whole tensor, in elements
  int64_t stride = 0;  // distance between rows in the whole tensor, in elements
};
// `dims`: extent of the whole tensor in dimension shard.dim, of this rank in all others.
ShardRows rows_of(std::span<const int64_t> dims, const Shard& shard);

// `dims` with the shard's extent in dimension shard.dim.
std::vector<int64_t> local_dims(std::vector<int64_t> dims, const Shard& shard);

}  // namespace gsel
