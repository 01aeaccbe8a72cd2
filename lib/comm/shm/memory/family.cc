// comm/shm/memory/family.cc: see family.h.
#include "comm/shm/memory/family.h"

#include <sys/mman.h>

#include <algorithm>
#include <utility>

#include "base/align.h"

namespace gsel::shm {
namespace {

constexpr uint64_t kFirstExtent = uint64_t{64} << 20;
constexpr uint64_t kLargestStep = uint64_t{4} << 30;

}  // namespace

Family::Family(std::shared_ptr<SharedMemory> memory, std::vector<Member> members, int32_t rank, os::Life own_life)
    : memory_(std::move(memory)),
      members_(std::move(members)),
      rank_(rank),
      own_life_(std::move(own_life)),
      fork_generation_(os::fork_generation()) {}

Family::~Family() {
  if (os::fork_generation() != fork_generation_) {
    // The watcher's thread is not in a forked child, and its locks may be held: leaks the pointer.
    alignas(std::shared_ptr<Watcher>) std::byte kept[sizeof watcher_];
    new (kept) std::shared_ptr<Watcher>(std::move(watcher_));
    return;
  }
  watcher_.reset();
  give_back_all();
  if (!left_behind_.load(std::memory_order_relaxed)) return;
  for (const auto& [offset, bytes] : taken_)
    if (std::ranges::find(shared_, offset, &Shared::offset) == shared_.end()) memory_->punch(offset, bytes);
}

// First fit. A large allocation is aligned to huge pages.
std::optional<uint64_t> Family::gap(uint64_t need, uint64_t unit) const {
  for (const SharedMemory::Extent& extent : extents_) {
    const uint64_t end = extent.offset + extent.bytes;
    uint64_t at = extent.offset;
    for (auto range = taken_.lower_bound(at); range != taken_.end() && range->first < end; ++range) {
      if (at + need <= range->first) break;
      at = round_up(range->first + range->second, unit);
    }
    if (at < end && need <= end - at) return at;
  }
  return {};
}

// Each extent is as large as all before it, within bounds, so that there are few.
uint64_t Family::allocate(uint64_t bytes) {
  const uint64_t need = round_up(std::max<uint64_t>(bytes, 1), kPage), unit = need >= kHugePage ? kHugePage : kPage;
  release_unused();
  std::lock_guard lock(mutex_);
  std::optional<uint64_t> at = gap(need, unit);
  if (!at) {
    uint64_t held = 0;
    for (const SharedMemory::Extent& extent : extents_) held += extent.bytes;
    extents_.push_back(memory_->extend(need, std::clamp(held, kFirstExtent, kLargestStep)));
    at = extents_.back().offset;
  }
  taken_.emplace(*at, need);
  return *at;
}

void Family::release(uint64_t offset) noexcept {
  std::lock_guard lock(mutex_);
  release_locked(offset);
}

void Family::release_locked(uint64_t offset) noexcept {
  const auto found = taken_.find(offset);
  if (found == taken_.end()) return;
  std::shared_lock lock(regions_mutex_);
  const bool stays = isolated(found->first, found->second);
  if (stays) madvise(memory_->at(found->first), found->second, MADV_DONTNEED);  // frees the private copies
  memory_->punch(found->first, found->second);
  if (!stays) taken_.erase(found);
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
