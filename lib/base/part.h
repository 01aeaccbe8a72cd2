// base/part.h: the part that a rank has of a tensor that the ranks of an axis share: a range of one dimension, in equal
// blocks. Pure arithmetic; does not know who shares and why.
#pragma once

#include <gsel/types.h>

#include <cstdint>
#include <span>
#include <vector>

namespace gsel {

// gsel_part, with what C++ wants of it.
struct Share {
  int32_t dim = -1;  // -1: all of it
  int32_t blocks = 1;
  int64_t begin = 0, end = 0, whole = 0;  // elements of a block

  bool is_whole() const { return dim < 0; }
  int64_t size() const { return end - begin; }
  gsel_part view() const { return {dim, blocks, begin, end, whole}; }
  bool operator==(const Share&) const = default;
};

// Placement of a value on the axis whose ranks share layers; its gradient has the dual one.
enum class Placement : uint8_t {
  replicate,  // alike on every rank; so is its gradient
  copy,       // alike on every rank, read by layers that have parts of other values: its gradient is partial
  shard,      // a part each; so is its gradient
  partial,    // to be added up; its gradient is whole
};

// Bounds of a part for each weight, of n items, in proportion to the weights: largest remainders first, then lower
// numbers. Every part has one item or more; n is no less than the number of weights.
std::vector<int64_t> share_bounds(int64_t n, std::span<const double> weights);

// A part as memory: rows of equal length at equal distances in the whole tensor; the part itself has them side by side.
struct PartRows {
  int64_t count = 0;   // rows
  int64_t length = 0;  // of a row, in elements
  int64_t first = 0;   // of the first one in the whole tensor
  int64_t stride = 0;  // from one to the next in the whole tensor
};
// dims: of the whole tensor, those before and behind part.dim as they are here.
PartRows rows_of(std::span<const int64_t> dims, const Share& part);

// dims with the part's share in place of its dimension.
std::vector<int64_t> local_dims(std::vector<int64_t> dims, const Share& part);

}  // namespace gsel
