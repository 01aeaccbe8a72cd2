// comm/shm/memory/memory.cc: memory for the caller in the shared memory of a family, so that all its ranks can access
// it. Pages are created before the caller gets them, near the calling thread, in steps, with a check of the host's free
// memory before each: so a lack of memory is an error here and does not kill a process later. Registered memory of the
// caller is copied to shared memory, and its addresses are then mapped to the copy. A family of one rank has private
// memory only.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "base/align.h"
#include "base/error.h"
#include "base/log.h"
#include "base/os.h"
#include "base/text.h"
#include "comm/shm/memory/family.h"

namespace gsel::shm {
namespace {

constexpr uint64_t kStep = uint64_t{64} << 20;

uintptr_t address_of(const void* memory) {
  return reinterpret_cast<uintptr_t>(memory);
}

void require_memory(uint64_t bytes, uint64_t of_bytes) {
  const uint64_t available = os::available_memory();
  if (bytes > available)
    fail(GSEL_ERR_NOMEM,
         "{} bytes of memory were asked for; {} are still needed, and this host or control group has {}", of_bytes,
         bytes, available);
}

// Creates writable pages for private or shared memory. false: the kernel does not support it.
bool make_pages(char* memory, uint64_t bytes) {
  if (madvise(memory, bytes, MADV_POPULATE_WRITE) == 0) return true;
  if (errno == EINVAL || errno == ENOSYS) return false;
  fail(GSEL_ERR_NOMEM, "no pages for {} bytes of memory: {}", bytes, errno_text(errno));
}

void touch_pages(char* memory, uint64_t bytes) {
  for (uint64_t at = 0; at < bytes; at += kPage) *static_cast<volatile char*>(memory + at) = 0;
}

// For fresh memory only: contents are zero before and after. shared: the memory is in it; nullptr: private.
void make_all_pages(char* memory, uint64_t bytes, const SharedMemory* shared) {
  if (bytes >= kHugePage) madvise(memory, bytes, MADV_HUGEPAGE);
  for (uint64_t done = 0; done < bytes; done += kStep) {
    const uint64_t some = std::min(kStep, bytes - done);
    if (bytes >= kHugePage) require_memory(bytes - done, bytes);
    if (make_pages(memory + done, some)) continue;
    if (shared)
      shared->reserve(shared->position(memory + done), some, "memory of the caller");
    else
      touch_pages(memory + done, some);
  }
}

char* map_private(uint64_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) fail(GSEL_ERR_NOMEM, "mmap of {} bytes failed: {}", bytes, errno_text(errno));
  return static_cast<char*>(memory);
}

// One line of /proc/self/maps.
struct Mapping {
  uintptr_t begin = 0, end = 0;
  std::string access, offset, device, path;
  uint64_t inode = 0;

  bool read(const std::string& line) {
    std::istringstream text(line);
    char dash = 0;
    text >> std::hex >> begin >> dash >> end >> access >> offset >> device >> std::dec >> inode >> std::ws;
    if (!text.eof() && text.fail()) return false;
    std::getline(text, path);
    return true;
  }
  bool private_anonymous() const { return access == "rw-p" && inode == 0 && path != "[stack]"; }
  std::string text() const { return fmt::format("{} {}", access, path.empty() ? "without a name" : one_line(path)); }
};

// Throws unless [memory, memory + bytes) is private anonymous memory from end to end.
void check_private_anonymous(const void* memory, uint64_t bytes) {
  const uintptr_t begin = address_of(memory), end = begin + bytes;
  uintptr_t covered = begin;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; covered < end && std::getline(maps, line);) {
    Mapping mapping;
    if (!mapping.read(line) || mapping.end <= covered) continue;
    if (mapping.begin > covered) break;
    if (!mapping.private_anonymous())
      fail(GSEL_ERR_ARG,
           "gsel_mem_register of {} bytes: at byte {} there is other memory, {}; it takes private anonymous "
           "pages, readable and writable, as mmap or a large malloc give",
           bytes, covered - begin, mapping.text());
    covered = mapping.end;
  }
  if (covered < end)
    fail(GSEL_ERR_ARG,
         "gsel_mem_register of {} bytes: nothing is mapped at byte {}, or /proc/self/maps does not say what", bytes,
         covered - begin);
}

}  // namespace

void* Family::alloc(uint64_t bytes) {
  if (bytes > static_cast<uint64_t>(PTRDIFF_MAX) - kPage)
    fail(GSEL_ERR_NOMEM, "{} bytes of memory are not to be had", bytes);
  Region region;
  region.bytes = round_up(std::max<uint64_t>(bytes, 1), kPage);
  if (region.bytes >= kHugePage) require_memory(region.bytes, region.bytes);  // extents are never given back
  if (memory_) region.offset = allocate(region.bytes);
  char* memory = memory_ ? memory_->at(region.offset) : map_private(region.bytes);
  try {
    make_all_pages(memory, region.bytes, memory_.get());
    std::lock_guard lock(regions_mutex_);
    regions_.emplace(address_of(memory), region);
  } catch (...) {
    give_back(address_of(memory), region);
    throw;
  }
  return memory;
}

void Family::free(void* memory) {
  if (!memory) return;
  Regions::node_type node;
  {
    std::lock_guard lock(regions_mutex_);
    node = regions_.extract(find(memory, false, "gsel_mem_free", "gsel_mem_alloc"));
  }
  give_back(node.key(), node.mapped());
}

void Family::register_memory(void* memory, uint64_t bytes) {
  if (bytes == 0 || bytes % kPage != 0 || address_of(memory) % kPage != 0 || bytes > UINTPTR_MAX - address_of(memory))
    fail(GSEL_ERR_ARG, "gsel_mem_register of {} bytes at {}: start and end must be at boundaries of {} bytes", bytes,
         memory, kPage);
  check_private_anonymous(memory, bytes);
  Region region{bytes, 0, true};
  note(address_of(memory), region);
  if (memory_) try {
      region.offset = allocate(bytes);
      share(static_cast<char*>(memory), region);
    } catch (...) {
      if (region.offset != 0) release(region.offset);
      std::lock_guard lock(regions_mutex_);
      regions_.erase(address_of(memory));
      throw;
    }
  std::lock_guard lock(regions_mutex_);
  regions_[address_of(memory)] = region;
  registered_count_.fetch_add(1, std::memory_order_release);
}

void Family::unregister_memory(void* memory) {
  Region region;
  {
    std::lock_guard lock(regions_mutex_);
    region = find(memory, true, "gsel_mem_unregister", "gsel_mem_register")->second;
  }
  if (memory_) make_private(static_cast<char*>(memory), region);
  {
    std::lock_guard lock(regions_mutex_);
    regions_.erase(address_of(memory));
    registered_count_.fetch_sub(1, std::memory_order_release);
  }
  if (memory_) release(region.offset);
}

// known: offset of the buffer in an extent; 0: in none.
uint64_t Family::offset_of_region(const void* memory, uint64_t bytes, uint64_t known) const {
  const uintptr_t at = address_of(memory);
  std::shared_lock lock(regions_mutex_);
  if (known != 0) return isolated(known, bytes) ? 0 : known;
  auto next = regions_.upper_bound(at);
  if (next == regions_.begin()) return 0;
  const auto& [begin, region] = *--next;
  if (region.offset == 0 || at - begin >= region.bytes || bytes > region.bytes - (at - begin)) return 0;
  const uint64_t offset = region.offset + (at - begin);
  return isolated(offset, bytes) ? 0 : offset;
}

Family::Regions::iterator Family::find(const void* memory, bool registered, const char* function, const char* made_by) {
  const auto found = regions_.find(address_of(memory));
  if (found == regions_.end() || found->second.registered != registered)
    fail(GSEL_ERR_ARG, "{}: {} is not from {} on a communicator of this family; pass what that gave or was given",
         function, memory, made_by);
  return found;
}

void Family::note(uintptr_t address, const Region& region) {
  std::lock_guard lock(regions_mutex_);
  const auto next = regions_.lower_bound(address + region.bytes);
  if (next != regions_.begin()) {
    const auto& [begin, before] = *std::prev(next);
    if (begin + before.bytes > address)
      fail(GSEL_ERR_ARG, "gsel_mem_register: {} of the {} bytes are registered already; unregister them first",
           std::min(begin + before.bytes, address + region.bytes) - std::max(begin, address), region.bytes);
  }
  regions_.emplace(address, region);
}

// The caller's memory is unchanged until the last step.
void Family::share(char* memory, const Region& region) const {
  char* copy = memory_->at(region.offset);
  make_all_pages(copy, region.bytes, memory_.get());
  std::memcpy(copy, memory, region.bytes);
  if (mmap(memory, region.bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, memory_->fd(),
           static_cast<off_t>(memory_->file_offset(region.offset))) == MAP_FAILED)
    fail(GSEL_ERR_NOMEM, "mmap of {} bytes of shared memory failed: {}", region.bytes, errno_text(errno));
}

// Copies to new memory, then moves the copy to the caller's addresses, which stay shared until then.
void Family::make_private(char* memory, const Region& region) const {
  char* copy = map_private(region.bytes);
  try {
    make_all_pages(copy, region.bytes, nullptr);
  } catch (...) {
    munmap(copy, region.bytes);
    throw;
  }
  std::memcpy(copy, memory, region.bytes);
  if (mremap(copy, region.bytes, region.bytes, MREMAP_MAYMOVE | MREMAP_FIXED, memory) != MAP_FAILED) return;
  const int failure = errno;
  munmap(copy, region.bytes);
  fail(GSEL_ERR_NOMEM, "mremap of {} bytes of memory failed: {}", region.bytes, errno_text(failure));
}

void Family::give_back(uintptr_t address, const Region& region) noexcept {
  if (memory_)
    release(region.offset);
  else
    munmap(reinterpret_cast<void*>(address), region.bytes);
}

// Registered memory outlives the family. If there is no memory for a private copy, it stays shared, and its pages live
// as long as the mapping.
void Family::give_back_all() noexcept {
  for (const auto& [address, region] : regions_) {
    if (!region.registered && !memory_) munmap(reinterpret_cast<void*>(address), region.bytes);
    if (region.registered && memory_) try {
        make_private(reinterpret_cast<char*>(address), region);
      } catch (const std::exception& e) {
        taken_.erase(region.offset);
        log(GSEL_LOG_WARN, "comm", "registered memory stays shared: {}", e.what());
      }
  }
  regions_.clear();
}

// ---- buffers of a failed call ---------------------------------------------------------------------------------------
// A rank of another process that was stopped in the middle of the call may be continued at any time, and write to the
// buffers then. A mapping cannot be removed from another process. Instead, this process maps the pages of a buffer
// again as private copies, at the same addresses. The kernel copies each page at its first write, so no concurrent
// write of a thread of this process is lost, even beside the buffer. The old pages are never used again.

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
