// checkpoint/weights_copy.cc: see weights_plan.h. A range of a product is at most 2n - 1 boxes; so is that of the rows
// of heads. What remains are strided copies, whose dimensions are joined where they are consecutive on both sides.
#include <algorithm>

#include "checkpoint/weights_plan.h"

namespace gsel::checkpoint {
namespace {

using Box = std::vector<gsel_range>;

// The elements [begin, end) of a product of counts, in row-major order, as boxes in this order.
void each_box(const std::vector<int64_t>& counts, int64_t begin, int64_t end,
              const std::function<void(const Box&)>& use) {
  Box box;
  const auto descend = [&](auto& self, int64_t from, int64_t to) -> void {
    if (from >= to) return;
    const size_t d = box.size();
    if (d == counts.size()) return use(box);
    int64_t inner = 1;
    for (size_t i = d + 1; i < counts.size(); ++i) inner *= counts[i];
    const auto rows = [&](int64_t first, int64_t last, int64_t a, int64_t b) {
      box.push_back({first, last});
      self(self, a, b);
      box.pop_back();
    };
    const int64_t first = from / inner, last = (to - 1) / inner;
    if (first == last) return rows(first, first + 1, from - first * inner, to - first * inner);
    const bool has_head = from % inner != 0, has_tail = to % inner != 0;
    if (has_head) rows(first, first + 1, from % inner, inner);
    const int64_t whole_first = first + has_head, whole_end = to / inner;
    if (whole_first < whole_end) rows(whole_first, whole_end, 0, inner);
    if (has_tail) rows(last, last + 1, 0, to % inner);
  };
  descend(descend, begin, end);
}

void join(WeightCopy& copy) {
  std::erase_if(copy.dims, [](const WeightCopy::Dim& dim) { return dim.count == 1; });
  std::ranges::stable_sort(copy.dims, std::greater<>(), &WeightCopy::Dim::file);
  std::vector<WeightCopy::Dim> joined;
  for (const WeightCopy::Dim& dim : copy.dims) {
    WeightCopy::Dim* const outer = joined.empty() ? nullptr : &joined.back();
    if (outer && outer->file == dim.count * dim.file && outer->memory == dim.count * dim.memory)
      *outer = {outer->count * dim.count, dim.file, dim.memory};
    else
      joined.push_back(dim);
  }
  copy.dims = std::move(joined);
}

// A box of the region's product, dimension by dimension: the intervals that it meets, and of these the rows of heads.
class BoxCopies {
 public:
  BoxCopies(const Region& region, const WeightPiece& piece, const std::function<void(const WeightCopy&)>& use)
      : region_(region), piece_(piece), use_(use), strides_(region.shape().size(), 1) {
    for (size_t d = strides_.size(); d-- > 1;) strides_[d - 1] = strides_[d] * length(d);
  }

  int64_t length(size_t dim) const {
    int64_t n = 0;
    for (const gsel_range& interval : region_.intervals(dim)) n += interval.end - interval.begin;
    return n;
  }

  void of(const Box& box) {
    WeightCopy copy{piece_.first, -region_.range().begin, {}};
    of_dim(box, 0, copy);
  }

 private:
  void of_dim(const Box& box, size_t d, const WeightCopy& before) {
    if (d == box.size()) {
      WeightCopy copy = before;
      join(copy);
      return use_(copy);
    }
    int64_t at = 0;  // of the interval among the region's indices
    for (const gsel_range& interval : region_.intervals(d)) {
      const int64_t shift = interval.begin - at;  // from those to indices of the parameter
      const int64_t begin = std::max({box[d].begin, at, piece_.box[d].begin - shift});
      const int64_t end = std::min({box[d].end, at + interval.end - interval.begin, piece_.box[d].end - shift});
      at += interval.end - interval.begin;
      if (begin >= end) continue;
      const int64_t first = begin + shift - piece_.box[d].begin;
      of_rows(box, d, before, first, first + end - begin, begin);
    }
  }

  // Indices [begin, end) of the piece, the first of which is `local` in the region.
  void of_rows(const Box& box, size_t d, const WeightCopy& before, int64_t begin, int64_t end, int64_t local) {
    const auto& digits = piece_.digits[d];
    std::vector<int64_t> counts, inner(digits.size(), 1);
    for (const WeightPiece::Digit& digit : digits) counts.push_back(digit.count);
    for (size_t i = digits.size(); i-- > 1;) inner[i - 1] = inner[i] * counts[i];
    each_box(counts, begin, end, [&](const Box& rows) {
      WeightCopy copy = before;
      int64_t index = -begin;
      for (size_t i = 0; i < digits.size(); ++i) {
        copy.file += rows[i].begin * digits[i].stride;
        index += rows[i].begin * inner[i];
        copy.dims.push_back({rows[i].end - rows[i].begin, digits[i].stride, inner[i] * strides_[d]});
      }
      copy.memory += (local + index) * strides_[d];
      of_dim(box, d + 1, copy);
    });
  }

  const Region& region_;
  const WeightPiece& piece_;
  const std::function<void(const WeightCopy&)>& use_;
  std::vector<int64_t> strides_;  // of the region's product
};

}  // namespace

int64_t WeightCopy::count() const {
  int64_t n = 1;
  for (const Dim& dim : dims) n *= dim.count;
  return n;
}

int64_t WeightCopy::extent() const {
  int64_t n = 1;
  for (const Dim& dim : dims) n += (dim.count - 1) * dim.file;
  return n;
}

int64_t WeightCopy::run() const {
  return !dims.empty() && dims.back().file == 1 ? dims.back().count : 1;
}

void each_copy(const Region& region, const WeightPiece& piece, const std::function<void(const WeightCopy&)>& use) {
  if (region.count() == 0) return;
  BoxCopies copies(region, piece, use);
  std::vector<int64_t> lengths;
  for (size_t d = 0; d < region.shape().size(); ++d) lengths.push_back(copies.length(d));
  each_box(lengths, region.range().begin, region.range().end, [&](const Box& box) { copies.of(box); });
}

}  // namespace gsel::checkpoint
