// comm/shm/memory/arena.cc: see arena.h.
#include "comm/shm/memory/arena.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "base/align.h"
#include "base/error.h"
#include "base/log.h"
#include "base/os.h"
#include "comm/shm/memory/shared_memory.h"

namespace gsel::shm {
namespace {

constexpr uint64_t kMagic = 0x616e657261734c67;
constexpr uint32_t kVersion = 13;
constexpr size_t kStagingOfAll = size_t{48} << 20;
constexpr size_t kStagingOfOne = size_t{512} << 10;

static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free,
              "flags are shared between processes");

std::shared_ptr<char> memory_from_heap(const Layout& layout) {
  const size_t bytes = round_up(layout.total_bytes, kPage);
  std::shared_ptr<char> memory(static_cast<char*>(std::aligned_alloc(kPage, bytes)), std::free);
  if (!memory) throw std::bad_alloc();
  std::memset(memory.get(), 0, bytes);
  return memory;
}

// nullptr: there is none, or no descriptor for it.
std::shared_ptr<char> memory_for_one(const Layout& layout) {
  try {
    const os::Fd fd = SharedMemory::create(layout.reserved_bytes(), layout.total_bytes, 1);
    const std::shared_ptr<SharedMemory> memory = SharedMemory::map(fd.get(), layout.total_bytes);
    return {memory, memory->control()};
  } catch (const Error& error) {
    log(GSEL_LOG_WARN, "comm", "gsel trace will not find the rank: {}", error.message());
    return nullptr;
  }
}

}  // namespace

Layout::Layout(int32_t ranks) : world_size(ranks) {
  const auto p = static_cast<size_t>(ranks);
  small_bytes = p <= 4 ? size_t{32} << 10 : p <= 16 ? size_t{8} << 10 : kLeastSmallBytes;
  // 512 KiB fits the L2 cache. With many ranks it is less, so that the total stays near 64 MiB.
  staging_bytes = p == 1 ? 0 : std::min(kStagingOfOne, kStagingOfAll / (2 * p) / kPage * kPage);
  slot_bytes = (p <= 4 ? 64 : p <= 16 ? 16 : p <= 32 ? 8 : 4) * size_t{1024};
  const size_t pairs = p == 1 ? 0 : p * p;
  ranks_at = round_up(sizeof(ArenaHeader), kPage);
  small_at = round_up(ranks_at + p * sizeof(RankBlock), kPage);
  rings_at = small_at + p * 2 * small_bytes;
  staging_at = round_up(rings_at + p * kRingCalls * sizeof(CallEntry), kPage);
  channels_at = staging_at + p * 2 * staging_bytes;
  slots_at = round_up(channels_at + pairs * sizeof(Channel), kPage);
  total_bytes = slots_at + pairs * kChannelSlots * slot_bytes;
}

std::shared_ptr<Arena> Arena::alone(int32_t order, const Seat& seat, std::string_view name, bool is_shared) {
  const Layout layout(1);
  std::shared_ptr<char> memory = is_shared ? memory_for_one(layout) : nullptr;
  if (!memory) memory = memory_from_heap(layout);
  ArenaHeader facts{};
  facts.cores = 1;
  facts.order = order;
  facts.asymmetric = 1;  // no other rank sleeps
  create(memory.get(), layout, facts, {seat}, name);
  return at(memory.get(), layout, memory);
}

void Arena::create(char* base, const Layout& layout, const ArenaHeader& facts, const std::vector<Seat>& seats,
                   std::string_view name) {
  auto& header = *reinterpret_cast<ArenaHeader*>(base);
  header.version = kVersion;
  header.world_size = layout.world_size;
  header.total_bytes = layout.total_bytes;
  header.cores = facts.cores;
  header.order = facts.order;
  header.asymmetric = facts.asymmetric;
  header.tuning = facts.tuning;
  std::memcpy(header.name, name.data(), std::min(name.size(), kNameBytes - 1));
  header.tick_zero = os::ticks();
  header.ns_zero = os::now_ns();
  auto* blocks = reinterpret_cast<RankBlock*>(base + layout.ranks_at);
  for (size_t r = 0; r < seats.size(); ++r) {
    blocks[r].pid = seats[r].pid;
    blocks[r].family_rank = seats[r].family_rank;
    blocks[r].shown_rank = seats[r].shown_rank;
  }
  header.magic.store(kMagic, std::memory_order_release);
}

std::shared_ptr<Arena> Arena::at(char* base, const Layout& layout, std::shared_ptr<const void> keep, uint64_t place) {
  const auto& header = *reinterpret_cast<const ArenaHeader*>(base);
  if (header.magic.load(std::memory_order_acquire) != kMagic || header.version != kVersion ||
      header.world_size != layout.world_size || header.total_bytes != layout.total_bytes)
    fail(GSEL_ERR_VERSION, "shared memory has layout {}, this libgsel knows {}; all ranks must use one libgsel",
         header.version, kVersion);
  return std::shared_ptr<Arena>(new Arena(layout, base, std::move(keep), place));
}

const std::atomic<uint64_t>* Arena::flag_at(uint64_t offset) const {
  if (offset % sizeof(uint64_t) != 0 || offset > layout_.total_bytes - sizeof(uint64_t)) return nullptr;
  return reinterpret_cast<const std::atomic<uint64_t>*>(base_ + offset);
}

}  // namespace gsel::shm
