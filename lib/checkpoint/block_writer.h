// checkpoint/block_writer.h: writes a file from its beginning on in aligned blocks, on threads of its own, so that what
// makes the bytes and the disk work at the same time. Does not know what is written.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "checkpoint/disk.h"

namespace gsel::checkpoint {

class BlockWriter {
 public:
  static constexpr size_t kWriteBlockBytes = size_t{8} << 20;

  // expected: bytes of the whole file. No thread is started for less than a block. idle: called now and then in a call
  // that waits for the disk.
  BlockWriter(DiskFile& file, uint64_t expected, int32_t threads, std::function<void()> idle = {});
  ~BlockWriter();  // waits
  BlockWriter(const BlockWriter&) = delete;
  BlockWriter& operator=(const BlockWriter&) = delete;

  // Both throw what a write has thrown.
  void put(const void* data, size_t bytes);
  void finish();  // all is written, and not yet synced

 private:
  struct Block {
    AlignedMemory memory;
    uint64_t offset = 0;
    size_t bytes = 0;
  };
  void submit();
  void work() noexcept;
  void throw_failure();
  void stop() noexcept;

  DiskFile& file_;
  const size_t block_bytes_;
  const int32_t most_threads_;
  const std::function<void()> idle_;
  uint64_t at_ = 0;
  Block filling_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Block> full_, empty_;
  int32_t n_blocks_ = 1;   // that there are
  int32_t n_writing_ = 0;  // blocks that threads have
  bool is_stopping_ = false;
  std::exception_ptr failure_;
  std::vector<std::thread> threads_;
};

}  // namespace gsel::checkpoint
