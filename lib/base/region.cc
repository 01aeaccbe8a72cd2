// base/region.cc: see region.h.
#include "base/region.h"

#include <algorithm>
#include <queue>

#include "base/error.h"

namespace gsel {
namespace {

int64_t length_of(const Region::Intervals& intervals) {
  int64_t n = 0;
  for (const gsel_range& interval : intervals) n += interval.end - interval.begin;
  return n;
}

// Overflow counts even where another dimension is 0, so that no product of a part of the shape overflows later.
int64_t elements_of(const std::vector<int64_t>& shape) {
  int64_t n = 1;
  bool is_empty = false;
  for (const int64_t dim : shape) {
    if (dim < 0) fail(GSEL_ERR_ARG, "a dimension of {} elements; expected 0 or more", dim);
    is_empty = is_empty || dim == 0;
    if (__builtin_mul_overflow(n, std::max<int64_t>(dim, 1), &n))
      fail(GSEL_ERR_ARG, "the product of the dimensions is above 2^63 - 1");
  }
  return is_empty ? 0 : n;
}

// Joins intervals that touch; the whole dimension if none is given.
Region::Intervals joined(const Region::Intervals& given, size_t dim, int64_t extent) {
  if (given.empty()) return extent == 0 ? Region::Intervals{} : Region::Intervals{{0, extent}};
  Region::Intervals intervals;
  int64_t end = 0;
  for (const gsel_range& interval : given) {
    if (interval.begin < end || interval.end < interval.begin || interval.end > extent)
      fail(GSEL_ERR_ARG,
           "interval [{}, {}) of dimension {}, which has {} elements; expected intervals in ascending order, "
           "none over another",
           interval.begin, interval.end, dim, extent);
    end = interval.end;
    if (interval.begin == interval.end) continue;
    if (!intervals.empty() && intervals.back().end == interval.begin)
      intervals.back().end = interval.end;
    else
      intervals.push_back(interval);
  }
  return intervals;
}

std::vector<Region::Intervals> intervals_of(const std::vector<int64_t>& shape, const Shard& shard) {
  if (shard.is_whole()) return {};
  std::vector<Region::Intervals> intervals(shape.size());
  for (int32_t block = 0; block < shard.blocks; ++block)
    intervals[shard.dim].push_back({block * shard.whole + shard.begin, block * shard.whole + shard.end});
  return intervals;
}

}  // namespace

Region::Region(std::vector<int64_t> shape, const Shard& shard)
    : Region(shape, intervals_of(shape, shard), std::nullopt) {}

Region::Region(std::vector<int64_t> shape, std::vector<Intervals> intervals, std::optional<gsel_range> range)
    : shape_(std::move(shape)), intervals_(std::move(intervals)), whole_(elements_of(shape_)) {
  if (intervals_.empty()) intervals_.resize(shape_.size());
  if (intervals_.size() != shape_.size())
    fail(GSEL_ERR_ARG, "intervals of {} dimensions, and the tensor has {}", intervals_.size(), shape_.size());
  for (size_t d = 0; d < shape_.size(); ++d) {
    intervals_[d] = joined(intervals_[d], d, shape_[d]);
    product_ *= length_of(intervals_[d]);  // at most that of the shape
  }
  range_ = range.value_or(gsel_range{0, product_});
  if (range_.begin < 0 || range_.end < range_.begin || range_.end > product_)
    fail(GSEL_ERR_ARG, "range [{}, {}) of {} elements", range_.begin, range_.end, product_);
}

Region Region::part(int64_t first, int64_t count) const {
  return {shape_, intervals_, gsel_range{range_.begin + first, range_.begin + first + count}};
}

// The last dimensions that are not divided are one row: the digit before them counts in steps of it.
Region::Cursor::Cursor(const Region& region) : region_(region), strides_(region.shape_.size(), 1) {
  if (region.count() == 0) {
    local_ = region.range_.end;
    return;
  }
  size_t n = region.shape_.size();
  for (size_t d = n; d-- > 1;) strides_[d - 1] = strides_[d] * region.shape_[d];
  while (n > 0 && length_of(region.intervals_[n - 1]) == region.shape_[n - 1]) inner_ *= region.shape_[--n];
  digits_.resize(n);
  local_ = region.range_.begin;
  int64_t rest = local_ / inner_;
  skip_ = local_ % inner_;
  for (size_t d = n; d-- > 0;) {
    const Intervals& intervals = region.intervals_[d];
    const int64_t length = length_of(intervals);
    int64_t index = rest % length;
    rest /= length;
    Digit& digit = digits_[d];
    for (; index >= intervals[digit.interval].end - intervals[digit.interval].begin; ++digit.interval)
      index -= intervals[digit.interval].end - intervals[digit.interval].begin;
    digit.index = intervals[digit.interval].begin + index;
  }
  ahead_ = next_row();
}

// To the next interval of the last digit, or of those before it the next index.
void Region::Cursor::advance(size_t dim) {
  for (size_t d = dim + 1; d-- > 0;) {
    const Intervals& intervals = region_.intervals_[d];
    Digit& digit = digits_[d];
    digit.index = d == dim ? intervals[digit.interval].end : digit.index + 1;
    if (digit.index < intervals[digit.interval].end) return;
    if (++digit.interval < intervals.size()) {
      digit.index = intervals[digit.interval].begin;
      return;
    }
    digit.interval = 0;
    digit.index = intervals.front().begin;
  }
}

std::optional<RegionRun> Region::Cursor::next_row() {
  if (local_ >= region_.range_.end) return std::nullopt;
  RegionRun run{skip_, local_ - region_.range_.begin, inner_ - skip_};
  for (size_t d = 0; d < digits_.size(); ++d) run.whole += digits_[d].index * strides_[d];
  if (!digits_.empty()) {
    const Digit& last = digits_.back();
    run.count = (region_.intervals_[digits_.size() - 1][last.interval].end - last.index) * inner_ - skip_;
    advance(digits_.size() - 1);
  }
  run.count = std::min(run.count, region_.range_.end - local_);
  skip_ = 0;
  local_ += run.count;
  return run;
}

// Rows whose last interval ends where the whole row does, and whose first begins there, touch.
std::optional<RegionRun> Region::Cursor::next() {
  std::optional<RegionRun> run = ahead_;
  if (!run) return run;
  for (ahead_ = next_row(); ahead_ && ahead_->whole == run->whole + run->count; ahead_ = next_row())
    run->count += ahead_->count;
  return run;
}

SharedRuns::SharedRuns(const Region& first, const Region& second)
    : first_(first), second_(second), a_(first_.next()), b_(second_.next()) {}

std::optional<SharedRun> SharedRuns::next() {
  while (a_ && b_) {
    const int64_t begin = std::max(a_->whole, b_->whole);
    const int64_t a_end = a_->whole + a_->count, b_end = b_->whole + b_->count;
    const SharedRun run{begin, a_->local + begin - a_->whole, b_->local + begin - b_->whole,
                        std::min(a_end, b_end) - begin};
    if (a_end <= b_end) a_ = first_.next();
    if (b_end <= a_end) b_ = second_.next();
    if (run.count > 0) return run;
  }
  return std::nullopt;
}

Coverage coverage_of(std::span<const Region* const> regions) {
  struct Head {
    RegionRun run;
    int32_t region;
    bool operator>(const Head& other) const {
      return run.whole != other.run.whole ? run.whole > other.run.whole : region > other.region;
    }
  };
  std::vector<Region::Cursor> cursors;
  std::priority_queue<Head, std::vector<Head>, std::greater<>> heads;
  int64_t whole = 0;
  for (size_t i = 0; i < regions.size(); ++i) {
    whole = Region(regions[i]->shape()).count();
    cursors.emplace_back(*regions[i]);
    if (const auto run = cursors.back().next()) heads.push({*run, static_cast<int32_t>(i)});
  }
  int64_t end = 0;
  int32_t last = -1;
  while (!heads.empty()) {
    const Head head = heads.top();
    heads.pop();
    if (head.run.whole > end) return {end, -1, -1};
    if (head.run.whole < end) return {head.run.whole, std::min(last, head.region), std::max(last, head.region)};
    end += head.run.count;
    last = head.region;
    if (const auto run = cursors[static_cast<size_t>(last)].next()) heads.push({*run, last});
  }
  return end < whole ? Coverage{end, -1, -1} : Coverage{};
}

}  // namespace gsel
