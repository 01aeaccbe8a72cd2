// checkpoint/sums.cc: see sums.h.
#include "checkpoint/sums.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

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
    const size_t some = std::min<uint64_t>(bytes, kSumBlockBytes - sums_.bytes % kSumBlockBytes);
    block_.add(from, some);
    from += some, bytes -= some, sums_.bytes += some;
    if (sums_.bytes % kSumBlockBytes != 0) continue;
    sums_.blocks.push_back(block_.text());
    block_.reset();
  }
}

FileSums FileSummer::sums() const {
  FileSums sums = sums_;
  sums.whole = whole_.text();
  if (sums.bytes % kSumBlockBytes != 0) sums.blocks.push_back(block_.text());
  return sums;
}

void BlockComparer::add(uint64_t offset, const void* data, size_t bytes) {
  walk_.add(offset, bytes, [&](const BlockWalk::Part& part) {
    if (!part.is_whole) return;
    if (part.begins) sum_.reset();
    sum_.add(static_cast<const char*>(data) + part.skip, part.bytes);
    if (!part.ends || sum_.text() == expected_.blocks[part.block]) return;
    const uint64_t begin = part.block * kSumBlockBytes, end = std::min(begin + kSumBlockBytes, expected_.bytes);
    throw Error(GSEL_ERR_PARSE, fmt::format("{}, bytes {} to {}: the sum is {}, and the manifest says {}; the file has "
                                            "changed since it was written",
                                            path_, begin, end, sum_.text(), expected_.blocks[part.block]))
        .at({path_, 0, 0, {}});
  });
}

}  // namespace gsel::checkpoint
