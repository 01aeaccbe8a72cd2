// comm/shm/memory/isolate.cc: protects buffers of a failed call that a rank of another process may still write to: that
// rank was stopped in the middle of the call, and may be continued at any time. A mapping cannot be removed from
// another process. Instead, this process maps the buffer's pages again as private copies, at the same addresses. The
// kernel copies each page at its first write, so no concurrent write of a thread of this process is lost, even beside
// the buffer. The old pages are never used again.
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>

#include "base/align.h"
#include "base/error.h"
#include "base/log.h"
#include "comm/shm/memory/family.h"

namespace gsel::shm {
namespace {

// Atomically replaces one byte of each page with itself: a write that changes nothing, even with concurrent writers.
void copy_pages_on_write(char* memory, uint64_t bytes) {
  for (uint64_t at = 0; at < bytes; at += kPage) {
    const std::atomic_ref<char> byte(memory[at]);
    char value = byte.load(std::memory_order_relaxed);
    while (!byte.compare_exchange_weak(value, value, std::memory_order_relaxed)) {
    }
  }
}

}  // namespace

void Family::isolate(void* memory, uint64_t bytes) noexcept {
  const uint64_t at = bytes > 0 ? offset_of(memory, bytes) : 0;
  if (at == 0) return;  // private already
  const uint64_t before = at % kPage, offset = at - before, length = round_up(before + bytes, kPage);
  char* pages = static_cast<char*>(memory) - before;
  try {
    std::lock_guard lock(regions_mutex_);
    isolated_.push_back({offset, length});
    isolated_count_.fetch_add(1, std::memory_order_release);
  } catch (const std::exception&) {
    return;  // no memory for the entry: the buffer stays shared
  }
  if (mmap(pages, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, memory_->fd(),
           static_cast<off_t>(memory_->file_offset(offset))) == MAP_FAILED) {
    log(GSEL_LOG_WARN, "comm", "a stopped rank may still write to {} bytes of this rank's buffer: {}", bytes,
        errno_text(errno));
    return;
  }
  copy_pages_on_write(pages, length);
}

bool Family::isolated(uint64_t offset, uint64_t bytes) const {
  return std::ranges::any_of(isolated_, [&](const SharedMemory::Extent& pages) {
    return offset < pages.offset + pages.bytes && pages.offset < offset + std::max<uint64_t>(bytes, 1);
  });
}

}  // namespace gsel::shm
