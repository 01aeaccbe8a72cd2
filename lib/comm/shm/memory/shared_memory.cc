// comm/shm/memory/shared_memory.cc: see shared_memory.h.
#include "comm/shm/memory/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <utility>

#include "base/align.h"
#include "base/error.h"
#include "base/os.h"
#include "base/text.h"

namespace gsel::shm {
namespace {

using Inode = std::pair<dev_t, ino_t>;

// Live mappings of this process; guarded by os::process_mutex. Ended mappings are dropped when the next one is made, so
// that releasing one needs no lock, not even in a forked child.
std::map<Inode, std::weak_ptr<SharedMemory>>& memories() {
  static auto* all = new std::map<Inode, std::weak_ptr<SharedMemory>>;
  return *all;
}

uint64_t limit_of(int resource) {
  rlimit limit{};
  if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return UINT64_MAX;
  return limit.rlim_cur;
}

uint64_t size_of(int fd) {
  struct stat status {};
  if (fstat(fd, &status) != 0) fail(GSEL_ERR_IO, "fstat of shared memory failed: {}", errno_text(errno));
  return static_cast<uint64_t>(status.st_size);
}

// Growing beyond RLIMIT_FSIZE raises a signal.
void require_file_size(uint64_t bytes) {
  if (bytes > limit_of(RLIMIT_FSIZE))
    fail(GSEL_ERR_NOMEM,
         "shared memory of {} bytes was asked for, this process may write files of {} bytes; raise the limit (ulimit "
         "-f)",
         bytes, limit_of(RLIMIT_FSIZE));
}

// The seal makes ftruncate fail for a rank that lost a race with a larger size; the file is then large enough.
void grow_file(int fd, uint64_t bytes) {
  require_file_size(bytes);
  while (size_of(fd) < bytes) {
    if (ftruncate(fd, static_cast<off_t>(bytes)) == 0 || errno == EINTR) continue;
    const int failure = errno;
    if (size_of(fd) < bytes)
      fail(GSEL_ERR_NOMEM, "shared memory could not grow to {} bytes: {}", bytes, errno_text(failure));
  }
}

int reserve_pages(int fd, uint64_t begin, uint64_t bytes) {
  int failure = 0;
  do failure = posix_fallocate(fd, static_cast<off_t>(begin), static_cast<off_t>(bytes));
  while (failure == EINTR);
  return failure;
}

}  // namespace

os::Fd SharedMemory::create(uint64_t reserved_bytes, uint64_t control_bytes, int32_t ranks) {
  os::Fd fd(memfd_create("gsel", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd)
    fail(GSEL_ERR_IO, "no shared memory for {}: memfd_create failed: {}{}", with_noun(ranks, "rank"), errno_text(errno),
         errno == EMFILE || errno == ENFILE ? "" : "; a sandbox around ranks must allow it");
  grow_file(fd.get(), kControlAt + control_bytes);
  if (fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_SEAL) != 0)
    fail(GSEL_ERR_IO, "shared memory could not be sealed: {}", errno_text(errno));
  if (const int failure = reserve_pages(fd.get(), 0, kControlAt + reserved_bytes))
    fail(GSEL_ERR_NOMEM, "no {} bytes of shared memory for {}: {}", kControlAt + reserved_bytes,
         with_noun(ranks, "rank"), errno_text(failure));
  return fd;
}

std::shared_ptr<SharedMemory> SharedMemory::map(int fd, uint64_t control_bytes) {
  struct stat status {};
  if (fstat(fd, &status) != 0) fail(GSEL_ERR_IO, "fstat of shared memory failed: {}", errno_text(errno));
  std::lock_guard lock(os::process_mutex());
  auto& all = memories();
  std::erase_if(all, [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<SharedMemory>& known = all[{status.st_dev, status.st_ino}];
  if (auto memory = known.lock()) return memory;
  const uint64_t bytes = kControlAt + control_bytes;
  if (static_cast<uint64_t>(status.st_size) < bytes)
    fail(GSEL_ERR_INTERNAL, "shared memory has {} bytes, at least {} are expected; all ranks must use one libgsel",
         status.st_size, bytes);
  std::shared_ptr<SharedMemory> memory(new SharedMemory);
  memory->fd_ = os::Fd(fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!memory->fd_) fail(GSEL_ERR_IO, "dup of shared memory failed: {}", errno_text(errno));
  memory->mapping_ = std::make_unique_for_overwrite<Mapping[]>(kMostExtents);
  memory->base_ = std::make_unique<std::atomic<char*>[]>(kMostExtents);
  memory->add_mapping(0, 0, bytes);
  uint64_t none = 0;
  memory->directory().end.compare_exchange_strong(none, round_up(bytes, kHugePage));
  uint32_t nobody = 0;
  memory->directory().extents.compare_exchange_strong(nobody, 1);
  known = memory;
  return memory;
}

SharedMemory::~SharedMemory() {
  for (uint32_t i = 0; i < mappings_.load(); ++i) munmap(mapping_[i].base, mapping_[i].bytes);
}

// With mutex_ held, or before other threads have the object.
char* SharedMemory::add_mapping(uint64_t number, uint64_t begin, uint64_t bytes) const {
  void* base =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd_.get(), static_cast<off_t>(begin));
  if (base == MAP_FAILED)
    fail(GSEL_ERR_NOMEM, "no addresses for {} bytes of shared memory: {}; raise the limit of addresses (ulimit -v)",
         bytes, errno_text(errno));
  madvise(base, bytes, MADV_DONTDUMP);
  const uint32_t n = mappings_.load(std::memory_order_relaxed);
  mapping_[n] = {static_cast<char*>(base), bytes, number << kExtentShift};
  mappings_.store(n + 1, std::memory_order_release);
  base_[number].store(static_cast<char*>(base), std::memory_order_release);
  return static_cast<char*>(base);
}

char* SharedMemory::map_extent(uint64_t number) const {
  std::lock_guard lock(mutex_);
  const uint64_t bytes = number < kMostExtents ? directory().extent[number].bytes.load(std::memory_order_acquire) : 0;
  if (bytes == 0) fail(GSEL_ERR_INTERNAL, "shared memory has no extent {}; all ranks must use one libgsel", number);
  if (char* base = base_[number].load(std::memory_order_relaxed)) return base;  // another thread was faster
  return add_mapping(number, directory().extent[number].begin.load(std::memory_order_relaxed), bytes);
}

SharedMemory::Extent SharedMemory::extend(uint64_t least, uint64_t wanted) {
  const bool limited = limit_of(RLIMIT_AS) != UINT64_MAX || limit_of(RLIMIT_FSIZE) != UINT64_MAX;
  const uint64_t bytes = round_up(limited ? least : std::max(least, wanted), kHugePage);
  // Checked before `end` moves, which would block another rank's smaller extent until it is moved back.
  require_file_size(directory().end.load(std::memory_order_relaxed) + bytes);
  const uint64_t begin = directory().end.fetch_add(bytes, std::memory_order_relaxed);
  try {
    grow_file(fd_.get(), begin + bytes);
  } catch (...) {
    uint64_t end = begin + bytes;
    directory().end.compare_exchange_strong(end, begin);  // a smaller extent may still fit
    throw;
  }
  std::lock_guard lock(mutex_);
  const uint32_t number = directory().extents.fetch_add(1, std::memory_order_relaxed);
  if (number >= kMostExtents)
    fail(GSEL_ERR_NOMEM,
         "{} bytes of shared memory were asked for; its ranks have {} extents already, as many as there may be", least,
         kMostExtents);
  add_mapping(number, begin, bytes);
  directory().extent[number].begin.store(begin, std::memory_order_relaxed);
  directory().extent[number].bytes.store(bytes, std::memory_order_release);
  return {static_cast<uint64_t>(number) << kExtentShift, bytes};
}

const SharedMemory::Mapping* SharedMemory::mapping_of(const void* memory, uint64_t bytes) const {
  const auto at = reinterpret_cast<uintptr_t>(memory);
  const uint32_t n = mappings_.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < n; ++i) {
    const uint64_t within = at - reinterpret_cast<uintptr_t>(mapping_[i].base);
    if (within < mapping_[i].bytes) return bytes <= mapping_[i].bytes - within ? &mapping_[i] : nullptr;
  }
  return nullptr;
}

uint64_t SharedMemory::offset_of(const void* memory, uint64_t bytes) const {
  const Mapping* mapping = mapping_of(memory, bytes);
  return mapping && mapping != mapping_.get() ? mapping->position(memory) : 0;
}

uint64_t SharedMemory::position(const void* memory) const {
  return mapping_of(memory, 0)->position(memory);
}

uint64_t SharedMemory::file_offset(uint64_t offset) const {
  const uint64_t number = offset >> kExtentShift;
  return directory().extent[number].begin.load(std::memory_order_relaxed) + (offset & kWithin);
}

void SharedMemory::reserve(uint64_t offset, uint64_t bytes, const char* purpose) const {
  if (const int failure = reserve_pages(fd_.get(), file_offset(offset), bytes))
    fail(GSEL_ERR_NOMEM, "no {} bytes of shared memory for {}: {}", bytes, purpose, errno_text(failure));
}

void SharedMemory::punch(uint64_t offset, uint64_t bytes) const noexcept {
  const auto punched = uninterrupted([&] {
    return fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(file_offset(offset)),
                     static_cast<off_t>(bytes));
  });
  if (punched != 0) std::memset(at(offset), 0, bytes);  // the pages stay, but must be zero
}

}  // namespace gsel::shm
