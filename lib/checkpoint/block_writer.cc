// checkpoint/block_writer.cc: see block_writer.h.
#include "checkpoint/block_writer.h"

#include <algorithm>
#include <cstring>

#include "base/align.h"
#include "base/threads.h"
#include "checkpoint/idle_wait.h"

namespace gsel::checkpoint {

BlockWriter::BlockWriter(DiskFile& file, uint64_t expected, int32_t threads, std::function<void()> idle)
    : file_(file),
      block_bytes_(std::clamp<uint64_t>(round_up(expected, kDirectAlign), kDirectAlign, kWriteBlockBytes)),
      most_threads_(threads),
      idle_(std::move(idle)) {
  filling_.memory = aligned_memory(block_bytes_);
}

BlockWriter::~BlockWriter() {
  stop();
}

void BlockWriter::put(const void* data, size_t bytes) {
  for (const auto* from = static_cast<const char*>(data); bytes > 0;) {
    const size_t some = std::min(bytes, block_bytes_ - filling_.bytes);
    std::memcpy(filling_.memory.get() + filling_.bytes, from, some);
    filling_.bytes += some, from += some, bytes -= some, at_ += some;
    if (filling_.bytes == kWriteBlockBytes) submit();
  }
}

// The last block is no whole one, and written here.
void BlockWriter::finish() {
  {
    std::unique_lock lock(mutex_);
    idle_wait(changed_, lock, idle_, [this] { return failure_ || (full_.empty() && n_writing_ == 0); });
  }
  stop();
  throw_failure();
  if (filling_.bytes > 0) file_.write(at_ - filling_.bytes, filling_.memory.get(), filling_.bytes);
  filling_.bytes = 0;
}

// Hands the block over, and takes an empty one.
void BlockWriter::submit() {
  filling_.offset = at_ - filling_.bytes;
  std::unique_lock lock(mutex_);
  throw_failure();
  full_.push_back(std::move(filling_));
  filling_ = {};
  if (static_cast<int32_t>(threads_.size()) < most_threads_) threads_.push_back(request_thread([this] { work(); }));
  changed_.notify_all();
  if (empty_.empty() && n_blocks_ <= most_threads_) {
    ++n_blocks_;
    filling_.memory = aligned_memory(block_bytes_);
    return;
  }
  idle_wait(changed_, lock, idle_, [this] { return failure_ || !empty_.empty(); });
  throw_failure();
  filling_ = std::move(empty_.front());
  empty_.pop_front();
  filling_.bytes = 0;
}

void BlockWriter::work() noexcept {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return is_stopping_ || failure_ || !full_.empty(); });
    if (is_stopping_ || failure_) return;
    Block block = std::move(full_.front());
    full_.pop_front();
    ++n_writing_;
    lock.unlock();
    std::exception_ptr failure;
    try {
      file_.write(block.offset, block.memory.get(), block.bytes);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    --n_writing_;
    if (failure && !failure_) failure_ = failure;
    empty_.push_back(std::move(block));
    changed_.notify_all();
  }
}

void BlockWriter::throw_failure() {
  if (failure_) std::rethrow_exception(failure_);
}

void BlockWriter::stop() noexcept {
  {
    std::unique_lock lock(mutex_);
    is_stopping_ = true;
    changed_.notify_all();
    idle_wait_to_end(changed_, lock, idle_, [this] { return n_writing_ == 0; });
  }
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

}  // namespace gsel::checkpoint
