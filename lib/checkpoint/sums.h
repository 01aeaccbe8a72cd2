// checkpoint/sums.h: XXH3 of 128 bits of files, of the whole and of each block of 16 MiB. They find faults of a disk,
// and no changes that are made on purpose. Does not read or write.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace gsel::checkpoint {

constexpr uint64_t kSumBlockBytes = uint64_t{1} << 24;
constexpr int64_t kSumBlockElems = kSumBlockBytes / sizeof(float);  // of tensors, in a buffer

// Sums are texts of 32 hexadecimal digits.
class Sum {
 public:
  Sum();
  Sum(Sum&&) noexcept;
  ~Sum();
  void reset();
  void add(const void* data, size_t bytes);
  std::string text() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};
std::string sum_of(const void* data, size_t bytes);

struct FileSums {
  uint64_t bytes = 0;  // of the file
  std::string whole;
  std::vector<std::string> blocks;  // the last may be shorter
};

// Of a file from its beginning on.
class FileSummer {
 public:
  void add(const void* data, size_t bytes);
  FileSums sums() const;

 private:
  FileSums sums_;  // blocks that are whole
  Sum whole_, block_;
};

// The blocks of a file whose bytes are given in ascending order. Bytes that were given before are skipped.
class BlockWalk {
 public:
  explicit BlockWalk(uint64_t file_bytes) : file_bytes_(file_bytes) {}

  // Bytes of one block; the first is byte `skip` of those given to add(). is_whole: the block was given from its
  // beginning up to the end of these, without a gap.
  struct Part {
    size_t block, skip, bytes;
    bool is_whole, begins, ends;
  };
  template <class Use>
  void add(uint64_t offset, uint64_t bytes, Use&& use) {
    const uint64_t end = std::min(offset + bytes, file_bytes_);
    if (offset > at_) {
      at_ = offset;
      is_whole_ = false;
    }
    while (at_ < end) {
      const uint64_t block = at_ / kSumBlockBytes, block_end = std::min((block + 1) * kSumBlockBytes, file_bytes_);
      const bool begins = at_ == block * kSumBlockBytes;
      is_whole_ = is_whole_ || begins;
      const uint64_t some = std::min(end, block_end) - at_, skip = at_ - offset;
      at_ += some;
      use(Part{block, skip, some, is_whole_, begins, at_ == block_end});
    }
  }

 private:
  const uint64_t file_bytes_;
  uint64_t at_ = 0;  // next byte
  bool is_whole_ = true;
};

// Compares the sums of a file that is read in ascending order. Compares only blocks of which every byte is given.
class BlockComparer {
 public:
  BlockComparer(std::string path, FileSums expected)
      : path_(std::move(path)), expected_(std::move(expected)), walk_(expected_.bytes) {}
  // GSEL_ERR_PARSE with file and offset of the block.
  void add(uint64_t offset, const void* data, size_t bytes);

 private:
  const std::string path_;
  const FileSums expected_;
  BlockWalk walk_;
  Sum sum_;
};

}  // namespace gsel::checkpoint
