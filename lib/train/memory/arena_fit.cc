// train/memory/arena_fit.cc: uses the smaller result of two methods. The first places buffers in order of time with a
// best-fit list of holes: fast, and optimal for most programs. If it leaves gaps, the second places the largest buffers
// first, each in the tightest gap that is free for its whole life (Pisarchyk and Lee, "Efficient memory management for
// deep neural net inference", 2020).
#include "train/memory/arena_fit.h"

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <numeric>

namespace gsel {
namespace {

// The second method takes quadratic time: for many buffers it runs only if it may save much.
constexpr size_t kFew = 2000, kTooMany = 20000;
constexpr double kGoodEnough = 1.02;  // relative to most_live

// Offsets of an arena that grows when no hole fits.
class Holes {
 public:
  uint64_t take(uint64_t bytes) {
    auto best = holes_.end();
    for (auto it = holes_.begin(); it != holes_.end(); ++it)
      if (it->second >= bytes && (best == holes_.end() || it->second < best->second)) best = it;
    if (best == holes_.end()) return grow(bytes);
    const auto [offset, size] = *best;
    holes_.erase(best);
    if (size > bytes) holes_[offset + bytes] = size - bytes;
    return offset;
  }

  void give_back(uint64_t offset, uint64_t bytes) {
    auto it = holes_.emplace(offset, bytes).first;
    if (const auto next = std::next(it); next != holes_.end() && offset + bytes == next->first) {
      it->second += next->second;
      holes_.erase(next);
    }
    if (it == holes_.begin()) return;
    if (const auto previous = std::prev(it); previous->first + previous->second == offset) {
      previous->second += it->second;
      holes_.erase(it);
    }
  }

  uint64_t end() const { return end_; }

 private:
  // Extends a hole at the end of the arena if there is one.
  uint64_t grow(uint64_t bytes) {
    uint64_t offset = end_;
    if (!holes_.empty() && holes_.rbegin()->first + holes_.rbegin()->second == end_) {
      offset = holes_.rbegin()->first;
      holes_.erase(offset);
    }
    end_ = offset + bytes;
    return offset;
  }

  std::map<uint64_t, uint64_t> holes_;  // offset -> bytes
  uint64_t end_ = 0;
};

uint64_t fit_by_time(std::vector<Buffer>& buffers, size_t length) {
  std::vector<std::vector<size_t>> begins(length), ends(length);
  for (size_t b = 0; b < buffers.size(); ++b) {
    begins[buffers[b].first].push_back(b);
    ends[buffers[b].last].push_back(b);
  }
  Holes holes;
  for (size_t i = 0; i < length; ++i) {
    std::ranges::stable_sort(begins[i], [&](size_t a, size_t b) { return buffers[a].bytes > buffers[b].bytes; });
    for (size_t b : begins[i]) buffers[b].offset = holes.take(buffers[b].bytes);
    for (size_t b : ends[i]) holes.give_back(buffers[b].offset, buffers[b].bytes);
  }
  return holes.end();
}

// The placed buffers. To find those that live at the same time quickly, they are listed by section of the step: the
// step is halved several times, and each section lists the buffers that live in it.
class Placed {
 public:
  explicit Placed(size_t length) : least_(std::max(static_cast<int32_t>(std::bit_width(length)) - kHalvings, 0)) {
    for (int32_t i = 0; i <= kHalvings; ++i) sections_[i].resize((length >> (least_ + i)) + 1);
  }

  void add(const Buffer& b) {
    for (int32_t i = 0; i <= kHalvings; ++i)
      for (int32_t section = b.first >> (least_ + i); section <= b.last >> (least_ + i); ++section)
        sections_[i][section].buffers.push_back(b);
  }

  // The start of the smallest gap between buffers that live at the same time.
  uint64_t tightest_gap(const Buffer& wanted) {
    uint64_t best = ~uint64_t{0}, best_size = best, end = 0;
    for (const Buffer& other : around(wanted).by_offset()) {
      if (other.last < wanted.first || other.first > wanted.last) continue;
      if (other.offset >= end + wanted.bytes && other.offset - end < best_size) {
        best = end;
        best_size = other.offset - end;
      }
      end = std::max(end, other.offset + other.bytes);
    }
    return best_size == ~uint64_t{0} ? end : best;
  }

 private:
  static constexpr int32_t kHalvings = 5;

  struct Section {
    std::vector<Buffer> buffers;
    size_t sorted = 0;  // sorted ones come first

    const std::vector<Buffer>& by_offset() {
      const auto before = [](const Buffer& a, const Buffer& b) { return a.offset < b.offset; };
      const auto more = buffers.begin() + static_cast<ptrdiff_t>(sorted);
      std::stable_sort(more, buffers.end(), before);
      std::inplace_merge(buffers.begin(), more, buffers.end(), before);
      sorted = buffers.size();
      return buffers;
    }
  };

  // The smallest section that contains the buffer's life.
  Section& around(const Buffer& b) {
    int32_t i = 0;
    while (b.first >> (least_ + i) != b.last >> (least_ + i)) ++i;
    return sections_[i][b.first >> (least_ + i)];
  }

  const int32_t least_;  // the smallest sections have 2^least_ instructions
  std::array<std::vector<Section>, kHalvings + 1> sections_;
};

// Gives up when the arena reaches too_many bytes.
uint64_t fit_by_size(std::vector<Buffer>& buffers, size_t length, uint64_t too_many) {
  std::vector<size_t> order(buffers.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return buffers[a].bytes > buffers[b].bytes; });
  Placed placed(length);
  uint64_t end = 0;
  for (size_t b : order) {
    buffers[b].offset = placed.tightest_gap(buffers[b]);
    end = std::max(end, buffers[b].offset + buffers[b].bytes);
    if (end >= too_many) return end;
    placed.add(buffers[b]);
  }
  return end;
}

}  // namespace

uint64_t most_live(const std::vector<Buffer>& buffers, size_t length) {
  std::vector<int64_t> change(length + 1);
  for (const Buffer& b : buffers) {
    change[b.first] += static_cast<int64_t>(b.bytes);
    change[b.last + 1] -= static_cast<int64_t>(b.bytes);
  }
  int64_t live = 0, most = 0;
  for (int64_t c : change) most = std::max(most, live += c);
  return static_cast<uint64_t>(most);
}

uint64_t fit(std::vector<Buffer>& buffers, size_t length) {
  const uint64_t by_time = fit_by_time(buffers, length);
  const double waste = static_cast<double>(by_time) / static_cast<double>(most_live(buffers, length));
  if (buffers.empty() || waste <= (buffers.size() <= kFew ? 1 : kGoodEnough) || buffers.size() > kTooMany)
    return by_time;
  std::vector<Buffer> other = buffers;
  const uint64_t by_size = fit_by_size(other, length, by_time);
  if (by_size >= by_time) return by_time;
  buffers = std::move(other);
  return by_size;
}

}  // namespace gsel
