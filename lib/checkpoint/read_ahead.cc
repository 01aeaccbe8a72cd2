// checkpoint/read_ahead.cc: see read_ahead.h.
#include "checkpoint/read_ahead.h"

#include <algorithm>

#include "base/align.h"
#include "base/threads.h"
#include "checkpoint/idle_wait.h"

namespace gsel::checkpoint {
namespace {

constexpr size_t kPlacedPiece = size_t{64} << 10, kPlacedAlign = 16;

// Where a piece begins in a block of which `used` bytes are taken: a long one as far from a multiple of kDirectAlign
// as in the file, so that the disk writes it there.
size_t place(size_t used, const FilePiece& piece) {
  const bool is_placed = piece.bytes >= kPlacedPiece && piece.offset % sizeof(float) == 0;
  const size_t align = is_placed ? kDirectAlign : kPlacedAlign, at = is_placed ? piece.offset % align : 0;
  return at + (used > at ? round_up(used - at, align) : 0);
}

}  // namespace

size_t ReadAhead::piece_bytes(uint64_t offset, uint64_t bytes) {
  const uint64_t room = offset % sizeof(float) == 0 ? kReadBlockBytes - offset % kReadBlockBytes : kReadBlockBytes;
  return static_cast<size_t>(std::min(room, bytes));
}

ReadAhead::ReadAhead(std::vector<FilePiece> pieces, std::function<void()> idle)
    : pieces_(std::move(pieces)), idle_(std::move(idle)) {
  uint64_t bytes = 0;
  for (const FilePiece& piece : pieces_) bytes += piece.bytes;
  if (bytes > kReadBlockBytes || (idle_ && bytes > 0)) thread_ = request_thread([this] { work(); });
}

ReadAhead::~ReadAhead() {
  {
    std::unique_lock lock(mutex_);
    is_stopping_ = true;
    changed_.notify_all();
    idle_wait_to_end(changed_, lock, idle_, [this] { return !is_filling_; });
  }
  if (thread_.joinable()) thread_.join();
}

const char* ReadAhead::next() {
  if (!block_ || at_ == block_->end) advance();
  const FilePiece& piece = pieces_[at_++];
  const size_t begin = place(used_, piece);
  used_ = begin + piece.bytes;
  return block_->memory.get() + begin;
}

// To the next block, in exchange for the one that the caller has.
void ReadAhead::advance() {
  if (block_ && block_->failure) std::rethrow_exception(block_->failure);
  if (thread_.joinable()) {
    std::unique_lock lock(mutex_);
    if (block_) ++n_taken_;
    changed_.notify_all();
    idle_wait(changed_, lock, idle_, [this] { return n_filled_ > n_taken_; });
    block_ = &blocks_[n_taken_ % kMostBlocks];
  } else {
    block_ = blocks_.data();
    fill(*block_, at_);
  }
  used_ = 0;
  if (at_ == block_->end) std::rethrow_exception(block_->failure);
}

void ReadAhead::fill(Block& block, size_t first) {
  constexpr size_t kBytes = kReadBlockBytes + kDirectAlign;
  block.end = first;
  try {
    if (!block.memory) block.memory = aligned_memory(kBytes);
    for (size_t used = 0; block.end < pieces_.size(); ++block.end) {
      const FilePiece& piece = pieces_[block.end];
      const size_t begin = place(used, piece);
      if (begin + piece.bytes > kBytes) return;
      piece.file->read(piece.offset, block.memory.get() + begin, piece.bytes);
      used = begin + piece.bytes;
    }
  } catch (...) {
    block.failure = std::current_exception();
  }
}

void ReadAhead::work() noexcept {
  for (size_t first = 0; first < pieces_.size();) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return is_stopping_ || n_filled_ < n_taken_ + kMostBlocks; });
    if (is_stopping_) return;
    Block& block = blocks_[n_filled_ % kMostBlocks];
    is_filling_ = true;
    lock.unlock();
    fill(block, first);
    const bool has_failed = block.failure != nullptr;
    first = block.end;
    lock.lock();
    is_filling_ = false;
    ++n_filled_;
    changed_.notify_all();
    if (has_failed) return;
  }
}

}  // namespace gsel::checkpoint
