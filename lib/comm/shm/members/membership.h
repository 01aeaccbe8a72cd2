// comm/shm/members/membership.h: which ranks a communicator has: the arena that they share, the family that they come
// from, and how errors name them. Changes only when the communicator is made whole again, which gives it another arena.
// Does not know what the ranks do.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/forked.h"
#include "base/os.h"
#include "comm/shm/call/fault.h"
#include "comm/shm/memory/arena.h"
#include "comm/shm/memory/family.h"

namespace gsel::shm {

// The ranks that errors speak of. A communicator that the library makes for itself out of one of the caller's has ranks
// that the caller never sees: its errors tell the ranks of the caller's communicator.
struct Numbering {
  std::string name;                // of the caller's communicator; empty: of this one
  std::vector<int32_t> of_family;  // by rank of the family: rank there, or -1
};

// What is known of a rank whose process is no more: not whether it exited or was killed, which its parent alone learns.
inline constexpr const char* kEnded = "ended without gsel_comm_free";

// A rank's block of the communicator that was joined, of a family of more than one.
inline RankBlock& joined_block(const Family& family, int32_t family_rank) {
  char* joined = family.memory()->control();
  return reinterpret_cast<RankBlock*>(joined + Layout(family.size()).ranks_at)[family_rank];
}

// A rank's place in a communicator: what its endpoint begins with.
struct MemberPlace {
  std::shared_ptr<Family> family;
  std::shared_ptr<Arena> arena;
  int32_t rank = 0;
  int64_t timeout_ns = 0;
  bool threads_allowed = true;
  Faults faults = {};                               // of the communicator that was joined; those made from it have none
  std::shared_ptr<const Numbering> numbering = {};  // of the ranks in errors; nullptr: its own
};

class Membership {
 public:
  explicit Membership(const MemberPlace& place);

  int32_t rank() const { return rank_; }
  int32_t world_size() const { return world_size_; }
  size_t ranks() const { return static_cast<size_t>(world_size_); }
  bool one_process() const { return one_process_; }  // all ranks are threads of this one
  const char* name() const noexcept { return name_.c_str(); }
  std::shared_ptr<const Numbering> numbering() const;
  const Tuning& tuning() const { return tuning_; }

  Arena& arena() const { return *arena_; }
  RankBlock& block(int32_t rank) const { return blocks_[rank]; }
  RankBlock& mine() const { return *mine_; }
  ArenaHeader& header() const { return *header_; }
  bool is_broken() const { return header_->broken.load(std::memory_order_acquire) != 0; }
  CallEntry& own_entry(uint64_t number) const { return ring_[number % kRingCalls]; }  // of the flight recorder
  // Number of this rank's latest header line, which is that of its collectives.
  uint64_t posted_headers() const {
    const RankBlock& me = mine();
    return std::max(me.line[0].sequence.load(std::memory_order_relaxed),
                    me.line[1].sequence.load(std::memory_order_relaxed));
  }
  const std::shared_ptr<Arena>& shared_arena() const { return arena_; }  // of the thread that makes the calls
  std::shared_ptr<Arena> arena_now() const;                              // any thread
  std::mutex& arena_mutex() const { return arena_mutex_; }               // held, the arena stays the same
  std::shared_ptr<Arena> exchange_arena(std::shared_ptr<Arena> next);

  const std::shared_ptr<Family>& shared_family() const { return family_; }
  Family& family() const { return *family_; }
  const Member& member(int32_t rank) const { return family_->member(block(rank).family_rank); }
  bool is_thread_here(int32_t rank) const { return member(rank).process == member(rank_).process; }
  bool ended(int32_t rank) const { return family_->ended(block(rank).family_rank); }

  // GSEL_ERR_FORKED in a child; `asked` for what cannot be done there.
  void require_own_process(const char* asked) const { gsel::require_own_process(fork_generation_, asked); }
  bool is_own_process() const { return os::fork_generation() == fork_generation_; }

  // A rank as errors show it, and where that is not its rank in the communicator that was joined, that too.
  int32_t shown(int32_t rank) const { return block(rank).shown_rank.load(std::memory_order_relaxed); }
  std::string named(int32_t rank) const;  // "rank 0 (rank 2 of world)"
  std::string who(int32_t rank) const;    // with its process: "rank 0 (pid 17, rank 2 of world)"
  std::string which() const;              // " (communicator ...)" to end a text with, where this process has several
  // Of a rank of the family, which need not be a member.
  std::string name_in_family(int32_t family_rank, bool with_pid = false) const;
  // From now on errors show the ranks by these numbers; every member says the same.
  void show_as(std::span<const int32_t> shown);
  int32_t shown_of_family(int32_t family_rank) const;  // -1: errors have no number for it
  int32_t family_of_shown(int32_t in_text) const;
  // The numbers by which errors of this communicator go.
  std::shared_ptr<const Numbering> own_numbering() const;

 private:
  void find_places();

  const int32_t rank_;
  const int32_t world_size_;
  std::shared_ptr<Arena> arena_;
  ArenaHeader* header_;  // in the arena, as the rest; what every call looks at is one step away
  RankBlock* blocks_;
  RankBlock* mine_;
  CallEntry* ring_;
  const std::shared_ptr<Family> family_;
  mutable std::mutex arena_mutex_;  // for who looks at arena_ from another thread than the one that makes the calls
  mutable std::mutex numbering_mutex_;
  const std::string name_;
  std::shared_ptr<const Numbering> numbering_;
  const Tuning tuning_;
  bool one_process_ = true;
  const uint64_t fork_generation_ = os::fork_generation();
};

// A text without what `which` has put behind it, also on another host.
std::string_view without_which(std::string_view text);

// ---- names of communicators in texts; two of them are told apart by the address of their arena in this process ----

// Of one that this process founds: `given`, else "world", "world-2", ...
std::string founded_name(std::string_view given);
// Of one made from another: "world.split2:0". Cut in front where it is too long for kNameBytes.
std::string derived_name(const char* origin, std::string_view made);

// The communicators of this process: those of ranks that are its threads share an arena.
void enter_communicator(const Arena& arena);
void leave_communicator(const Arena& arena) noexcept;
bool several_communicators();

}  // namespace gsel::shm
