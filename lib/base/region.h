// base/region.h: the elements of a tensor that a rank, or a file, holds: in each dimension a list of intervals, whose
// product is a smaller tensor in row-major order (a shard), and of this order a range (a shard of a bucket that ranks
// divide). Two regions of one tensor meet in runs of consecutive elements. Does not know what the elements are.
#pragma once

#include <gsel/types.h>

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/shard.h"

namespace gsel {

// Elements that are consecutive in the whole tensor and in the region.
struct RegionRun {
  int64_t whole = 0;  // offset of the first in the whole tensor
  int64_t local = 0;  // offset in the region
  int64_t count = 0;
  bool operator==(const RegionRun&) const = default;
};

class Region {
 public:
  using Intervals = std::vector<gsel_range>;  // of one dimension: ascending, disjoint; {}: the whole dimension

  // All elements of a tensor of this shape.
  explicit Region(std::vector<int64_t> shape) : Region(std::move(shape), {}, std::nullopt) {}
  // The shard of one rank.
  Region(std::vector<int64_t> shape, const Shard& shard);
  // intervals: one list for each dimension, or none. range: of the elements of their product; empty: all of them.
  // GSEL_ERR_ARG, with what is wrong, since a file may say anything: a tensor has at most 2^63 - 1 elements.
  Region(std::vector<int64_t> shape, std::vector<Intervals> intervals, std::optional<gsel_range> range);

  // The elements [first, first + count) of these.
  Region part(int64_t first, int64_t count) const;

  int64_t count() const { return range_.end - range_.begin; }
  bool is_whole() const { return count() == whole_; }
  const std::vector<int64_t>& shape() const { return shape_; }
  const Intervals& intervals(size_t dim) const { return intervals_[dim]; }
  gsel_range range() const { return range_; }
  int64_t product() const { return product_; }  // elements of the intervals; range() indexes them

  // The runs, as long as they can be, in ascending order of both offsets.
  class Cursor;

 private:
  std::vector<int64_t> shape_;
  std::vector<Intervals> intervals_;  // never empty where the dimension is not
  gsel_range range_{};
  int64_t whole_ = 1, product_ = 1;
};

class Region::Cursor {
 public:
  explicit Cursor(const Region& region);  // borrowed
  std::optional<RegionRun> next();

 private:
  struct Digit {          // of the position, for each dimension up to the last one that is divided
    size_t interval = 0;  // index
    int64_t index = 0;    // in the whole dimension
  };
  std::optional<RegionRun> next_row();
  void advance(size_t dim);

  const Region& region_;
  std::vector<int64_t> strides_;  // of the whole tensor
  std::vector<Digit> digits_;
  int64_t inner_ = 1;  // consecutive elements for each index of the last digit
  int64_t local_ = 0;  // next element, of the product
  int64_t skip_ = 0;   // elements of the first run that are before the range
  std::optional<RegionRun> ahead_;
};

// Elements that two regions of one tensor share: consecutive in both.
struct SharedRun {
  int64_t whole = 0, first_local = 0, second_local = 0, count = 0;
  bool operator==(const SharedRun&) const = default;
};

// In ascending order. Both regions are borrowed.
class SharedRuns {
 public:
  SharedRuns(const Region& first, const Region& second);
  std::optional<SharedRun> next();

 private:
  Region::Cursor first_, second_;
  std::optional<RegionRun> a_, b_;
};

// Whether regions of one tensor hold each of its elements once.
struct Coverage {
  int64_t whole = -1;               // the first element that is missing or held twice; -1: there is none
  int32_t first = -1, second = -1;  // indices of the regions that both hold it; -1: it is missing
  bool is_exact() const { return whole < 0; }
};
Coverage coverage_of(std::span<const Region* const> regions);

}  // namespace gsel
