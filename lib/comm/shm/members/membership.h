// comm/shm/members/membership.h: the ranks of a communicator: their arena, their family and their names in errors.
// Changes only in a resync, which gives the communicator a new arena. Does not know what the ranks do.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/os.h"
#include "comm/shm/call/fault.h"
#include "comm/shm/memory/arena.h"
#include "comm/shm/memory/family.h"

namespace gsel::shm {

// Rank numbers in errors. An internal communicator made from one of the caller's has ranks that the caller never sees,
// so its errors show the ranks of the caller's communicator.
struct Numbering {
  std::string name;                // of the caller's communicator; empty: this one
  std::vector<int32_t> of_family;  // by rank of the family: rank there, or -1
};

// Describes a rank whose process has ended. Only its parent learns whether it exited or was killed.
inline constexpr const char* kEnded = "ended without gsel_comm_free";

// A rank's block in the joined communicator, for a family of more than one rank.
inline RankBlock& joined_block(const Family& family, int32_t family_rank) {
  char* joined = family.memory()->control();
  return reinterpret_cast<RankBlock*>(joined + Layout(family.size()).ranks_at)[family_rank];
}

// A rank's place in a communicator: the arguments of an endpoint.
struct MemberPlace {
  std::shared_ptr<Family> family;
  std::shared_ptr<Arena> arena;
  int32_t rank = 0;
  int64_t timeout_ns = 0;
  bool threads_allowed = true;
  Faults faults = {};                               // for the joined communicator only
  std::shared_ptr<const Numbering> numbering = {};  // in errors; nullptr: the communicator's own
};

class Membership {
 public:
  explicit Membership(const MemberPlace& place);

  int32_t rank() const { return rank_; }
  int32_t world_size() const { return world_size_; }
  size_t ranks() const { return static_cast<size_t>(world_size_); }
  bool one_process() const { return one_process_; }  // all ranks are threads of this process
  const char* name() const noexcept { return name_.c_str(); }
  std::shared_ptr<const Numbering> numbering() const;
  const Tuning& tuning() const { return tuning_; }

  Arena& arena() const { return *arena_; }
  RankBlock& block(int32_t rank) const { return blocks_[rank]; }
  RankBlock& mine() const { return *mine_; }
  ArenaHeader& header() const { return *header_; }
  bool is_broken() const { return header_->broken.load(std::memory_order_acquire) != 0; }
  CallEntry& own_entry(uint64_t number) const { return ring_[number % kRingCalls]; }  // of the flight recorder
  // Number of this rank's latest header line.
  uint64_t posted_headers() const {
    const RankBlock& me = mine();
    return std::max(me.line[0].sequence.load(std::memory_order_relaxed),
                    me.line[1].sequence.load(std::memory_order_relaxed));
  }
  const std::shared_ptr<Arena>& shared_arena() const { return arena_; }  // only on the thread that makes the calls
  std::shared_ptr<Arena> arena_now() const;                              // any thread
  std::mutex& arena_mutex() const { return arena_mutex_; }               // while held, the arena is not exchanged
  std::shared_ptr<Arena> exchange_arena(std::shared_ptr<Arena> next);

  const std::shared_ptr<Family>& shared_family() const { return family_; }
  Family& family() const { return *family_; }
  const Member& member(int32_t rank) const { return family_->member(block(rank).family_rank); }
  bool is_thread_here(int32_t rank) const { return member(rank).process == member(rank_).process; }
  bool ended(int32_t rank) const { return family_->ended(block(rank).family_rank); }

  // GSEL_ERR_FORKED in a forked child; `function`: the function that was called.
  void require_own_process(const char* function) const { gsel::require_own_process(fork_generation_, function); }
  bool is_own_process() const { return os::fork_generation() == fork_generation_; }

  // The number of a rank in errors. The texts also show its rank in the joined communicator if that differs.
  int32_t shown(int32_t rank) const { return block(rank).shown_rank.load(std::memory_order_relaxed); }
  std::string named(int32_t rank) const;  // "rank 0 (rank 2 of world)"
  std::string who(int32_t rank) const;    // with its process: "rank 0 (pid 17, rank 2 of world)"
  std::string which() const;              // " (communicator ...)" to append, if this process has several; else empty
  // Name of a rank of the family, which need not be a member.
  std::string name_in_family(int32_t family_rank, bool with_pid = false) const;
  // From now on errors show the ranks by these numbers. Every member passes the same numbers.
  void show_as(std::span<const int32_t> shown);
  int32_t shown_of_family(int32_t family_rank) const;  // -1: errors have no number for it
  int32_t family_of_shown(int32_t in_text) const;
  // The numbers that errors of this communicator show.
  std::shared_ptr<const Numbering> own_numbering() const;

 private:
  void find_places();

  const int32_t rank_;
  const int32_t world_size_;
  std::shared_ptr<Arena> arena_;
  ArenaHeader* header_;  // this and the next three point into the arena, for fast access in every call
  RankBlock* blocks_;
  RankBlock* mine_;
  CallEntry* ring_;
  const std::shared_ptr<Family> family_;
  mutable std::mutex arena_mutex_;  // for readers of arena_ on threads other than the one that makes the calls
  mutable std::mutex numbering_mutex_;
  const std::string name_;
  std::shared_ptr<const Numbering> numbering_;
  const Tuning tuning_;
  bool one_process_ = true;
  const uint64_t fork_generation_ = os::fork_generation();
};

// A text without the suffix that `which` has appended, possibly on another host.
std::string_view without_which(std::string_view text);

// ---- names of communicators in texts ----

// Name of a communicator that this process founds: `given`, else "world", "world-2", ...
std::string founded_name(std::string_view given);
// Name of a communicator made from another: "world.split2:0". Truncated at the front to fit kNameBytes.
std::string derived_name(const char* origin, std::string_view made);

// Counts the communicators of this process, by the addresses of their arenas: ranks that are threads share one.
void enter_communicator(const Arena& arena);
void leave_communicator(const Arena& arena) noexcept;
bool several_communicators();

}  // namespace gsel::shm
