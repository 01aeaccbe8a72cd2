// device/host/reduce/user_fold.cc: reduction by a caller's function, see kernels.h. Works in tiles on copies, since out
// may be an input that is still to be read, and inputs must not be written.
#include <algorithm>
#include <bit>
#include <cstring>

#include "base/foreign.h"
#include "base/types.h"
#include "device/host/reduce/kernels.h"

namespace gsel::host {
namespace {

constexpr size_t kTileBytes = 4096;
static_assert(kTileBytes >= kMostRecordBytes);

class Tile {
 public:
  Tile(const Fold& fold, const void* const* in, size_t first, size_t count)
      : fold_(fold), in_(in), element_(dtype_bytes(fold.dtype)), offset_(first * element_), count_(count) {}

  // accumulated = the fold of n inputs from `from` on.
  // NOLINTNEXTLINE(misc-no-recursion): half of n at each level
  void fold(void* accumulated, int from, int n) const {
    int done = tree() ? half_of(n) : 1;
    if (done == 1)
      std::memcpy(accumulated, input(from), count_ * element_);
    else
      fold(accumulated, from, done);
    for (; done < n && !tree(); ++done) call(accumulated, input(from + done));
    if (done < n) fold_right(accumulated, from + done, n - done);
  }

 private:
  bool tree() const { return fold_.order == GSEL_ORDER_TREE; }
  // The largest power of two below n.
  static int half_of(int n) { return n < 2 ? 1 : static_cast<int>(std::bit_floor(static_cast<unsigned>(n - 1))); }
  const char* input(int q) const { return static_cast<const char*>(in_[q]) + offset_; }

  // NOLINTNEXTLINE(misc-no-recursion): as fold
  void fold_right(void* accumulated, int from, int n) const {
    if (n == 1) return call(accumulated, input(from));
    alignas(64) char next[kTileBytes];
    fold(next, from, n);
    call(accumulated, next);
  }

  void call(void* accumulated, const void* next) const {
    std::string thrown;
    const int32_t result = call_foreign(
        [&] { return fold_.function(accumulated, next, count_, fold_.dtype, fold_.user_data); }, 1, thrown);
    if (!thrown.empty()) fail(GSEL_ERR_CALLBACK, "the function of the operation failed: {}", thrown);
    if (result != 0) fail(GSEL_ERR_CALLBACK, "the function of the operation returned {}", result);
  }

  const Fold& fold_;
  const void* const* in_;
  size_t element_, offset_, count_;
};

}  // namespace

void fold_by_user(const Fold& fold, void* out, const void* const* in, int n, size_t count, size_t first) {
  const size_t element = dtype_bytes(fold.dtype);
  const size_t per_tile = kTileBytes / element / fold.record * fold.record;
  alignas(64) char accumulated[kTileBytes];
  for (size_t done = 0; done < count; done += per_tile) {
    const size_t some = std::min(count - done, per_tile);
    Tile(fold, in, first + done, some).fold(accumulated, 0, n);
    std::memcpy(static_cast<char*>(out) + done * element, accumulated, some * element);
  }
}

}  // namespace gsel::host
