// comm/shm/memory/family.h: a family: the ranks that joined together, and the memory that they share. Communicators
// split, duplicated or shrunk from the joined one stay in its family, so they need no sockets and share its memory.
// Does not know what is in that memory.
//
// Each rank takes extents of that memory (shared_memory.h) and allocates from its own extents without another rank.
#pragma once

#include <gsel/comm.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <vector>

#include "base/os.h"
#include "comm/shm/memory/shared_memory.h"

namespace gsel::shm {

struct Member {
  int32_t pid = 0;
  uint64_t process = 0;  // random number of the process; equal for ranks that are its threads
  uint64_t witness = 0;  // address of that number in the process
  os::Fd life;           // polls as ready after the process has ended; none for ranks of this process
};

class Watcher;

class Family {
 public:
  // memory: nullptr for a family of one.
  Family(std::shared_ptr<SharedMemory> memory, std::vector<Member> members, int32_t rank, os::Life own_life);
  // Makes registered memory private again. This rank's allocations are freed with the last rank of the family, which is
  // faster than freeing each; they are freed now if a rank was left behind, since it may keep the memory open.
  ~Family();
  Family(const Family&) = delete;
  Family& operator=(const Family&) = delete;

  int32_t rank() const { return rank_; }
  int32_t size() const { return static_cast<int32_t>(members_.size()); }
  const Member& member(int32_t family_rank) const { return members_[static_cast<size_t>(family_rank)]; }
  bool ended(int32_t family_rank) const {
    const Member& m = member(family_rank);
    return m.life && os::life_ended(m.life.get());
  }
  int32_t shown(int32_t family_rank) const {
    return shown_ranks.empty() ? family_rank : shown_ranks[static_cast<size_t>(family_rank)];
  }
  const std::shared_ptr<SharedMemory>& memory() const { return memory_; }
  std::string name;                  // of the joined communicator
  std::vector<int32_t> shown_ranks;  // by rank: number in texts; empty: the rank itself
  std::string trace_folder;          // where this rank writes its recording after a failure; empty: nowhere

  // The thread that notices deaths, see Watcher::watch; released before anything else of the family.
  void keep(std::shared_ptr<Watcher> watcher) { watcher_ = std::move(watcher); }
  Watcher* watcher() const { return watcher_.get(); }

  // Allocates memory, page aligned, zero, pages not reserved; returns its offset. Any thread.
  uint64_t allocate(uint64_t bytes);
  void release(uint64_t offset) noexcept;
  // Releases memory that other ranks use too, in some later allocate() after nobody uses it.
  void release_once(uint64_t offset, std::function<bool()> nobody_uses_it);

  // memory.cc: gsel_mem_alloc, gsel_mem_free, gsel_mem_register, gsel_mem_unregister. Any thread.
  void* alloc(uint64_t bytes);
  void free(void* memory);
  void register_memory(void* memory, uint64_t bytes);
  void unregister_memory(void* memory);
  // Offset of a buffer in the shared memory, whether it is in an extent's mapping or in a registered range; 0: private.
  uint64_t offset_of(const void* memory, uint64_t bytes) const {
    const uint64_t offset = memory_ ? memory_->offset_of(memory, bytes) : 0;
    if ((offset != 0 || registered_count_.load(std::memory_order_acquire) == 0) &&
        isolated_count_.load(std::memory_order_acquire) == 0)
      return offset;
    return offset_of_region(memory, bytes, offset);
  }
  // A living rank was left out of a shrink.
  void leave_behind() noexcept { left_behind_.store(true, std::memory_order_relaxed); }
  // Makes the pages of a buffer private to this process and keeps their contents, so that writes of other
  // ranks no longer reach them.
  void isolate(void* memory, uint64_t bytes) noexcept;

 private:
  // Memory of the caller. offset: in the shared memory; 0: private, in a family of one.
  struct Region {
    uint64_t bytes = 0;
    uint64_t offset = 0;
    bool registered = false;
  };
  struct Shared {
    uint64_t offset;
    std::function<bool()> nobody_uses_it;
  };
  using Regions = std::map<uintptr_t, Region>;

  void release_unused() noexcept;
  void release_locked(uint64_t offset) noexcept;
  Regions::iterator find(const void* memory, bool registered, const char* function, const char* made_by);
  void note(uintptr_t address, const Region& region);
  void give_back(uintptr_t address, const Region& region) noexcept;
  void give_back_all() noexcept;
  void share(char* memory, const Region& region) const;
  void make_private(char* memory, const Region& region) const;
  uint64_t offset_of_region(const void* memory, uint64_t bytes, uint64_t known) const;
  bool isolated(uint64_t offset, uint64_t bytes) const;
  std::optional<uint64_t> gap(uint64_t need, uint64_t unit) const;

  std::shared_ptr<SharedMemory> memory_;
  std::vector<Member> members_;
  int32_t rank_;
  os::Life own_life_;
  uint64_t fork_generation_;
  std::shared_ptr<Watcher> watcher_;

  std::mutex mutex_;
  std::vector<SharedMemory::Extent> extents_;  // this rank's
  std::map<uint64_t, uint64_t> taken_;         // offset to bytes
  std::vector<Shared> shared_;

  mutable std::shared_mutex regions_mutex_;
  Regions regions_;
  std::vector<SharedMemory::Extent> isolated_;  // in extents of this rank; never allocated again
  std::atomic<uint32_t> registered_count_{0};
  std::atomic<uint32_t> isolated_count_{0};
  std::atomic<bool> left_behind_{false};
};

}  // namespace gsel::shm
