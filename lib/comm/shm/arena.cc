// comm/shm/arena.cc: see arena.h.
#include "comm/shm/arena.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <new>
#include <utility>

#include "base/align.h"
#include "base/error.h"

namespace gsel::shm {
namespace {

constexpr uint64_t kMagic = 0x616e657261734c67;
constexpr uint32_t kVersion = 1;
constexpr size_t kPage = 4096;
constexpr size_t kStagingOfAll = size_t{48} << 20;
constexpr size_t kStagingOfOne = size_t{512} << 10;

static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free,
              "flags are shared between processes");

using Inode = std::pair<dev_t, ino_t>;

// Live mappings of this process; guarded by os::process_mutex. Mappings that ended are dropped when the next begins, so
// that releasing one needs no lock, in a forked child either.
std::map<Inode, std::weak_ptr<Arena>>& mappings() {
  static auto* all = new std::map<Inode, std::weak_ptr<Arena>>;
  return *all;
}

}  // namespace

Layout::Layout(int32_t ranks) : world_size(ranks) {
  const auto p = static_cast<size_t>(ranks);
  // 512 KiB stays in the second-level cache; many ranks get less, so that the whole stays near 64 MiB.
  staging_bytes = p == 1 ? 0 : std::min(kStagingOfOne, kStagingOfAll / (2 * p) / kPage * kPage);
  slot_bytes = (p <= 4 ? 64 : p <= 16 ? 16 : p <= 32 ? 8 : 4) * size_t{1024};
  const size_t pairs = p == 1 ? 0 : p * p;
  ranks_at = round_up(sizeof(ArenaHeader), kPage);
  small_at = round_up(ranks_at + p * sizeof(RankBlock), kPage);
  staging_at = small_at + p * 2 * kSmallBytes;
  channels_at = staging_at + p * 2 * staging_bytes;
  slots_at = round_up(channels_at + pairs * sizeof(Channel), kPage);
  total_bytes = slots_at + pairs * kSlots * slot_bytes;
}

std::shared_ptr<Arena> Arena::alone() {
  const Layout layout(1);
  auto* base = static_cast<char*>(std::aligned_alloc(kPage, round_up(layout.total_bytes, kPage)));
  if (!base) throw std::bad_alloc();
  std::memset(base, 0, layout.total_bytes);
  std::shared_ptr<Arena> arena(new Arena(layout, base, true));
  arena->header().cores = 1;
  return arena;
}

os::Fd Arena::create(const Layout& layout, int32_t cores) {
  os::Fd fd(memfd_create("gsel", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) fail(GSEL_ERR_IO, "memfd_create failed: {}", errno_text(errno));
  const int reserved = posix_fallocate(fd.get(), 0, static_cast<off_t>(layout.total_bytes));
  if (reserved != 0)
    fail(GSEL_ERR_NOMEM, "no {} bytes of shared memory for {} ranks: {}", layout.total_bytes, layout.world_size,
         errno_text(reserved));
  ArenaHeader header{};
  header.version = kVersion;
  header.world_size = layout.world_size;
  header.total_bytes = layout.total_bytes;
  header.cores = cores;
  header.magic = kMagic;
  if (pwrite(fd.get(), &header, sizeof header, 0) != static_cast<ssize_t>(sizeof header) ||
      fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    fail(GSEL_ERR_IO, "shared memory could not be prepared: {}", errno_text(errno));
  return fd;
}

std::shared_ptr<Arena> Arena::map(int fd, const Layout& layout) {
  struct stat status {};
  if (fstat(fd, &status) != 0) fail(GSEL_ERR_IO, "fstat of shared memory failed: {}", errno_text(errno));
  std::lock_guard lock(os::process_mutex());
  auto& all = mappings();
  std::erase_if(all, [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<Arena>& known = all[{status.st_dev, status.st_ino}];
  if (auto arena = known.lock()) return arena;
  if (static_cast<size_t>(status.st_size) < layout.total_bytes)
    fail(GSEL_ERR_INTERNAL, "shared memory has {} bytes, {} ranks need {}; all ranks must use one libgsel",
         status.st_size, layout.world_size, layout.total_bytes);
  void* base = mmap(nullptr, layout.total_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (base == MAP_FAILED) fail(GSEL_ERR_NOMEM, "mmap of {} bytes failed: {}", layout.total_bytes, errno_text(errno));
  std::shared_ptr<Arena> arena(new Arena(layout, static_cast<char*>(base), false));
  const ArenaHeader& header = arena->header();
  if (header.magic.load(std::memory_order_acquire) != kMagic || header.version != kVersion ||
      header.world_size != layout.world_size || header.total_bytes != layout.total_bytes)
    fail(GSEL_ERR_VERSION, "shared memory has layout {}, this libgsel knows {}; all ranks must use one libgsel",
         header.version, kVersion);
  known = arena;
  return arena;
}

Arena::~Arena() {
  if (heap_)
    std::free(base_);
  else
    munmap(base_, layout_.total_bytes);
}

const std::atomic<uint64_t>* Arena::flag_at(uint64_t offset) const {
  if (offset % sizeof(uint64_t) != 0 || offset > layout_.total_bytes - sizeof(uint64_t)) return nullptr;
  return reinterpret_cast<const std::atomic<uint64_t>*>(base_ + offset);
}

}  // namespace gsel::shm
