// checkpoint/sums.h: XXH3 of 128 bits of files, of the whole and of each block of 16 MiB. They find
// faults of a disk, and no changes that are made on purpose. Does not read or write.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace gsel::checkpoint {

constexpr uint64_t kBlockBytes = uint64_t{1} << 24;
constexpr int64_t kBlockElems = kBlockBytes / sizeof(float);  // of tensors, in a buffer

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

// Compares the blocks of a file that is read in ascending order: those of which each byte is given. Bytes that are
// given again are passed over.
class BlockComparer {
 public:
  BlockComparer(std::string path, FileSums expected) : path_(std::move(path)), expected_(std::move(expected)) {}
  // GSEL_ERR_PARSE with file and offset of the block.
  void add(uint64_t offset, const void* data, size_t bytes);

 private:
  const std::string path_;
  const FileSums expected_;
  uint64_t at_ = 0;       // next byte
  bool is_whole_ = true;  // its block was given from the beginning on
  Sum sum_;
};

}  // namespace gsel::checkpoint
