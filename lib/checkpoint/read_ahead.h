// checkpoint/read_ahead.h: reads pieces of files in a given order on a thread of its own, so that the disk works while
// the program uses the pieces that have arrived. Does not know what is read.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "checkpoint/disk.h"

namespace gsel::checkpoint {

// Consecutive bytes of a file, at most ReadAhead::kReadBlockBytes.
struct FilePiece {
  DiskFile* file = nullptr;
  uint64_t offset = 0;
  size_t bytes = 0;
};

class ReadAhead {
 public:
  static constexpr size_t kReadBlockBytes = size_t{8} << 20;
  static constexpr size_t kMostBlocks = 4;

  // How many of the `bytes` at `offset` of a file the first piece takes: as far as the next multiple of
  // kReadBlockBytes, but never a part of an f32. bytes: a multiple of 4.
  static size_t piece_bytes(uint64_t offset, uint64_t bytes);

  // Nobody else may read the files while the object lives. idle: called now and then in a call that waits for the disk.
  // Without it no thread is started for less than a block.
  explicit ReadAhead(std::vector<FilePiece> pieces, std::function<void()> idle = {});
  ~ReadAhead();  // waits for the read under way
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

  // The bytes of the next piece, aligned for f32, valid until the next call. Throws what its read has thrown, when the
  // pieces before it have been returned.
  const char* next();

 private:
  // Several short pieces, or a long one.
  struct Block {
    AlignedMemory memory;
    size_t end = 0;              // piece
    std::exception_ptr failure;  // of piece `end`
  };
  void fill(Block& block, size_t first);
  void advance();
  void work() noexcept;

  const std::vector<FilePiece> pieces_;
  const std::function<void()> idle_;
  std::array<Block, kMostBlocks> blocks_;  // used in turn
  size_t at_ = 0;                          // next piece
  size_t used_ = 0;                        // bytes of the block that the caller has
  Block* block_ = nullptr;                 // which it has
  std::mutex mutex_;
  std::condition_variable changed_;
  size_t n_filled_ = 0, n_taken_ = 0;  // blocks so far
  bool is_stopping_ = false, is_filling_ = false;
  std::thread thread_;
};

}  // namespace gsel::checkpoint
