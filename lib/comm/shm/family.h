// comm/shm/family.h: the ranks that joined together and the memory they share. Communicators split, duplicated or
// shrunk from the first stay within its family, so they need no sockets and share its memory. Refuses to know what
// stands in that memory.
//
// The memory is one memfd: without a name, gone with its last user, not bound by any file system's size. It is sparse:
// first the arena of the first communicator, then a range of addresses for each rank, from which only that rank
// allocates, so allocating asks nobody. Every process maps the whole, once; places are told as offsets in it. Pages are
// reserved before they are used, so that lack of memory is an error and never a signal.
#pragma once

#include <gsel/plugin.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <vector>

#include "base/os.h"

namespace gsel::shm {

struct Member {
  int32_t pid = 0;
  uint64_t process = 0;  // tells ranks that are threads of one process
  uint64_t witness = 0;  // where in its memory that number stands
  os::Fd life;           // polls as ready when the process has ended; none for ranks of the own process
};

// The memfd as this process sees it; ranks that are threads of one process share it.
class SharedMemory {
 public:
  // Rank 0: made, sealed against changes of size, its first `reserved_bytes` reserved.
  static os::Fd create(uint64_t reserved_bytes, uint64_t control_bytes, uint64_t range_bytes, int32_t ranks);
  static std::shared_ptr<SharedMemory> map(int fd, uint64_t control_bytes, uint64_t range_bytes, int32_t ranks);
  // How much a rank's range can have here, given limits on address space; the family takes the least.
  static uint64_t range_limit(int32_t ranks);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  char* at(uint64_t offset) const { return base_ + offset; }
  // 0 for what is not in it, or in its control part only.
  uint64_t offset_of(const void* memory, uint64_t bytes) const;
  uint64_t position(const void* memory) const {
    return static_cast<uint64_t>(static_cast<const char*>(memory) - base_);
  }
  uint64_t range_begin(int32_t rank) const { return control_bytes_ + static_cast<uint64_t>(rank) * range_bytes_; }
  uint64_t range_bytes() const { return range_bytes_; }
  int fd() const { return fd_.get(); }
  // Pages for [offset, offset + bytes), near the calling thread, contents kept; GSEL_ERR_NOMEM.
  void reserve(uint64_t offset, uint64_t bytes, const char* purpose) const;
  // Gives the pages back.
  void punch(uint64_t offset, uint64_t bytes) const noexcept;

 private:
  SharedMemory() = default;
  os::Fd fd_;
  char* base_ = nullptr;
  uint64_t control_bytes_ = 0, range_bytes_ = 0, total_bytes_ = 0;
};

class Watcher;

class Family {
 public:
  // memory: nullptr for a family of one.
  Family(std::shared_ptr<SharedMemory> memory, std::vector<Member> members, int32_t rank, os::Life own_life);
  // Gives back what this rank has allocated and nobody uses any more; registered memory becomes private again.
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
  const std::shared_ptr<SharedMemory>& memory() const { return memory_; }
  std::string trace_folder;  // where this rank writes its recording at a failure; empty: nowhere

  // From now on a thread hears of deaths, if there is anybody to watch and a thread to be had.
  void watch();
  Watcher* watcher() const { return watcher_.get(); }

  // A piece of this rank's range, page aligned, contents zero, pages not reserved; offset in the memory. Any thread.
  uint64_t allocate(uint64_t bytes);
  void release(uint64_t offset) noexcept;
  // Releases a piece that others use too, some time after nobody does.
  void release_once(uint64_t offset, std::function<bool()> nobody_uses_it);

  // memory.cc: memory for the caller, as gsel_mem_alloc and its fellows have it. Any thread.
  void* alloc(uint64_t bytes);
  void free(void* memory);
  void enrol(void* memory, uint64_t bytes);
  void dismiss(void* memory);
  // Where a buffer stands in the shared memory, in the mapping itself or in a registered range; 0: not in one of them.
  uint64_t offset_of(const void* memory, uint64_t bytes) const {
    const uint64_t offset = memory_ ? memory_->offset_of(memory, bytes) : 0;
    if (offset != 0 || enrolled_.load(std::memory_order_acquire) == 0) return offset;
    return offset_of_enrolled(memory, bytes);
  }

 private:
  // What the caller has from here, by address. offset: in the shared memory; 0: there is none, it is private.
  struct Region {
    uint64_t bytes = 0;
    uint64_t offset = 0;
    bool enrolled = false;
  };
  struct Shared {
    uint64_t offset;
    std::function<bool()> nobody_uses_it;
  };
  using Regions = std::map<uintptr_t, Region>;

  void release_unused() noexcept;
  void release_locked(uint64_t offset) noexcept;
  Regions::iterator find(const void* memory, bool enrolled, const char* asked, const char* made_by);
  void note(uintptr_t address, const Region& region);
  void give_back(uintptr_t address, const Region& region) noexcept;
  void give_back_all() noexcept;
  void share(char* memory, const Region& region) const;
  void map_shared(char* memory, const Region& region) const;
  void make_private(char* memory, const Region& region) const;
  uint64_t offset_of_enrolled(const void* memory, uint64_t bytes) const;

  std::shared_ptr<SharedMemory> memory_;
  std::vector<Member> members_;
  int32_t rank_;
  os::Life own_life_;
  uint64_t fork_generation_;
  std::shared_ptr<Watcher> watcher_;

  std::mutex mutex_;
  std::map<uint64_t, uint64_t> taken_;  // offset to bytes
  std::vector<Shared> shared_;

  mutable std::shared_mutex regions_mutex_;
  Regions regions_;
  std::atomic<uint32_t> enrolled_{0};
};

}  // namespace gsel::shm
