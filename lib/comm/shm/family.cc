// comm/shm/family.cc: see family.h.
#include "comm/shm/family.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <utility>

#include "base/align.h"
#include "base/error.h"
#include "base/log.h"
#include "comm/shm/watcher.h"

namespace gsel::shm {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kHugePage = uint64_t{2} << 20;
constexpr uint64_t kMostOfOne = uint64_t{1} << 40;
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr uint64_t kMostOfAll = uint64_t{1} << 36;  // the sanitizers' own maps take most addresses
#else
constexpr uint64_t kMostOfAll = uint64_t{1} << 44;
#endif

using Inode = std::pair<dev_t, ino_t>;

// Live mappings of this process; guarded by os::process_mutex. Mappings that ended are dropped when the next begins, so
// that releasing one needs no lock, in a forked child either.
std::map<Inode, std::weak_ptr<SharedMemory>>& mappings() {
  static auto* all = new std::map<Inode, std::weak_ptr<SharedMemory>>;
  return *all;
}

uint64_t limit_of(int resource) {
  rlimit limit{};
  if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return UINT64_MAX;
  return limit.rlim_cur;
}

uint64_t total_bytes(uint64_t control_bytes, uint64_t range_bytes, int32_t ranks) {
  return control_bytes + range_bytes * static_cast<uint64_t>(ranks);
}

}  // namespace

uint64_t SharedMemory::range_limit(int32_t ranks) {
  const uint64_t all = std::min({kMostOfAll, limit_of(RLIMIT_AS) / 4, limit_of(RLIMIT_FSIZE) / 2});
  return std::min(kMostOfOne, all / static_cast<uint64_t>(ranks)) / kHugePage * kHugePage;
}

os::Fd SharedMemory::create(uint64_t reserved_bytes, uint64_t control_bytes, uint64_t range_bytes, int32_t ranks) {
  os::Fd fd(memfd_create("gsel", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd)
    fail(GSEL_ERR_IO, "no shared memory for {} ranks: memfd_create failed: {}; a sandbox around ranks must allow it",
         ranks, errno_text(errno));
  if (ftruncate(fd.get(), static_cast<off_t>(total_bytes(control_bytes, range_bytes, ranks))) != 0 ||
      fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    fail(GSEL_ERR_IO, "shared memory could not be prepared: {}", errno_text(errno));
  const int reserved = posix_fallocate(fd.get(), 0, static_cast<off_t>(reserved_bytes));
  if (reserved != 0)
    fail(GSEL_ERR_NOMEM, "no {} bytes of shared memory for {} ranks: {}", reserved_bytes, ranks, errno_text(reserved));
  return fd;
}

std::shared_ptr<SharedMemory> SharedMemory::map(int fd, uint64_t control_bytes, uint64_t range_bytes, int32_t ranks) {
  struct stat status {};
  if (fstat(fd, &status) != 0) fail(GSEL_ERR_IO, "fstat of shared memory failed: {}", errno_text(errno));
  std::lock_guard lock(os::process_mutex());
  auto& all = mappings();
  std::erase_if(all, [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<SharedMemory>& known = all[{status.st_dev, status.st_ino}];
  if (auto memory = known.lock()) return memory;
  const uint64_t total = total_bytes(control_bytes, range_bytes, ranks);
  if (static_cast<uint64_t>(status.st_size) != total)
    fail(GSEL_ERR_INTERNAL, "shared memory has {} bytes, {} ranks expect {}; all ranks must use one libgsel",
         status.st_size, ranks, total);
  std::shared_ptr<SharedMemory> memory(new SharedMemory);
  memory->fd_ = os::Fd(fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!memory->fd_) fail(GSEL_ERR_IO, "dup of shared memory failed: {}", errno_text(errno));
  void* base = mmap(nullptr, total, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (base == MAP_FAILED)
    fail(GSEL_ERR_NOMEM, "mmap of {} bytes of addresses failed: {}; see ulimit -v", total, errno_text(errno));
  memory->base_ = static_cast<char*>(base);
  memory->control_bytes_ = control_bytes;
  memory->range_bytes_ = range_bytes;
  memory->total_bytes_ = total;
  madvise(base, total, MADV_DONTDUMP);
  known = memory;
  return memory;
}

SharedMemory::~SharedMemory() {
  if (base_) munmap(base_, total_bytes_);
}

uint64_t SharedMemory::offset_of(const void* memory, uint64_t bytes) const {
  const auto at = reinterpret_cast<uintptr_t>(memory), base = reinterpret_cast<uintptr_t>(base_);
  if (at < base + control_bytes_ || at >= base + total_bytes_ || bytes > base + total_bytes_ - at) return 0;
  return at - base;
}

void SharedMemory::reserve(uint64_t offset, uint64_t bytes, const char* purpose) const {
  int failure = 0;
  do failure = posix_fallocate(fd_.get(), static_cast<off_t>(offset), static_cast<off_t>(bytes));
  while (failure == EINTR);
  if (failure != 0)
    fail(GSEL_ERR_NOMEM, "no {} bytes of shared memory for {}: {}", bytes, purpose, errno_text(failure));
}

void SharedMemory::punch(uint64_t offset, uint64_t bytes) const noexcept {
  fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
            static_cast<off_t>(bytes));
}

Family::Family(std::shared_ptr<SharedMemory> memory, std::vector<Member> members, int32_t rank, os::Life own_life)
    : memory_(std::move(memory)),
      members_(std::move(members)),
      rank_(rank),
      own_life_(std::move(own_life)),
      fork_generation_(os::fork_generation()) {}

Family::~Family() {
  if (os::fork_generation() != fork_generation_) {
    // The thread stayed with the parent: there is nothing to end, and nothing of it may be touched.
    if (watcher_) new std::shared_ptr<Watcher>(std::move(watcher_));
    return;
  }
  if (watcher_) watcher_->remove(*this);
  give_back_all();
  release_unused();
  std::erase_if(taken_, [&](const auto& piece) {
    return std::ranges::any_of(shared_, [&](const Shared& shared) { return shared.offset == piece.first; });
  });
  for (const auto& [offset, bytes] : taken_) memory_->punch(offset, bytes);
}

void Family::watch() {
  if (std::ranges::none_of(members_, [](const Member& member) { return static_cast<bool>(member.life); })) return;
  try {
    auto watcher = Watcher::of_process();
    try {
      watcher->add(*this);
    } catch (...) {
      watcher->remove(*this);
      throw;
    }
    watcher_ = std::move(watcher);
  } catch (const std::exception& e) {
    log(GSEL_LOG_WARN, "comm", "no thread watches for deaths, waiting ranks look for themselves: {}", e.what());
  }
}

// First fit. A large piece begins at a huge page's boundary.
uint64_t Family::allocate(uint64_t bytes) {
  const uint64_t need = round_up(std::max<uint64_t>(bytes, 1), kPage), unit = need >= kHugePage ? kHugePage : kPage;
  const uint64_t begin = memory_->range_begin(rank_), end = begin + memory_->range_bytes();
  release_unused();
  std::lock_guard lock(mutex_);
  uint64_t at = round_up(begin, unit);
  for (const auto& [offset, taken] : taken_) {
    if (at + need <= offset) break;
    at = std::max(at, round_up(offset + taken, unit));
  }
  if (need > end || at > end - need)
    fail(GSEL_ERR_NOMEM, "{} bytes of shared memory were asked for; the addresses of a rank are {} bytes", bytes,
         memory_->range_bytes());
  taken_.emplace(at, need);
  return at;
}

void Family::release(uint64_t offset) noexcept {
  std::lock_guard lock(mutex_);
  release_locked(offset);
}

void Family::release_locked(uint64_t offset) noexcept {
  const auto found = taken_.find(offset);
  if (found == taken_.end()) return;
  memory_->punch(found->first, found->second);
  taken_.erase(found);
}

void Family::release_once(uint64_t offset, std::function<bool()> nobody_uses_it) {
  std::lock_guard lock(mutex_);
  shared_.push_back({offset, std::move(nobody_uses_it)});
}

void Family::release_unused() noexcept {
  std::lock_guard lock(mutex_);
  std::erase_if(shared_, [&](const Shared& shared) {
    if (!shared.nobody_uses_it()) return false;
    release_locked(shared.offset);
    return true;
  });
}

}  // namespace gsel::shm
