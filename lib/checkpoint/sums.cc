// checkpoint/sums.cc: see sums.h.
#include "checkpoint/sums.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>

#include "base/error.h"

namespace gsel::checkpoint {

struct Sum::State {
  XXH3_state_t xxh3;
};

Sum::Sum() : state_(std::make_unique<State>()) {
  reset();
}
Sum::Sum(Sum&&) noexcept = default;
Sum::~Sum() = default;

void Sum::reset() {
  XXH3_128bits_reset(&state_->xxh3);
}

void Sum::add(const void* data, size_t bytes) {
  XXH3_128bits_update(&state_->xxh3, data, bytes);
}

std::string Sum::text() const {
  const XXH128_hash_t sum = XXH3_128bits_digest(&state_->xxh3);
  return fmt::format("{:016x}{:016x}", sum.high64, sum.low64);
}

std::string sum_of(const void* data, size_t bytes) {
  Sum sum;
  sum.add(data, bytes);
  return sum.text();
}

void FileSummer::add(const void* data, size_t bytes) {
  whole_.add(data, bytes);
  for (const auto* from = static_cast<const char*>(data); bytes > 0;) {
    const size_t some = std::min<uint64_t>(bytes, kBlockBytes - sums_.bytes % kBlockBytes);
    block_.add(from, some);
    from += some, bytes -= some, sums_.bytes += some;
    if (sums_.bytes % kBlockBytes != 0) continue;
    sums_.blocks.push_back(block_.text());
    block_.reset();
  }
}

FileSums FileSummer::sums() const {
  FileSums sums = sums_;
  sums.whole = whole_.text();
  if (sums.bytes % kBlockBytes != 0) sums.blocks.push_back(block_.text());
  return sums;
}

void BlockComparer::add(uint64_t offset, const void* data, size_t bytes) {
  const auto* from = static_cast<const char*>(data);
  const size_t again = offset < at_ ? std::min<uint64_t>(bytes, at_ - offset) : 0;
  from += again, offset += again, bytes -= again;
  if (bytes > 0 && offset > at_) {
    is_whole_ = offset % kBlockBytes == 0;
    sum_.reset();
    at_ = offset;
  }
  while (bytes > 0 && at_ < expected_.bytes) {
    const size_t block = at_ / kBlockBytes;
    const uint64_t begin = block * kBlockBytes, end = std::min(begin + kBlockBytes, expected_.bytes);
    const size_t some = std::min<uint64_t>(bytes, end - at_);
    if (is_whole_) sum_.add(from, some);
    from += some, bytes -= some, at_ += some;
    if (at_ < end) return;
    if (is_whole_ && sum_.text() != expected_.blocks[block])
      throw Error(GSEL_ERR_PARSE,
                  fmt::format("{}, bytes {} to {}: the sum is {}, and the manifest says {}; the file has "
                              "changed since it was written",
                              path_, begin, end, sum_.text(), expected_.blocks[block]))
          .at({path_, 0, 0, {}});
    is_whole_ = true;
    sum_.reset();
  }
}

}  // namespace gsel::checkpoint
