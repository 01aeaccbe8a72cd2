// comm/shm/wait/breaking.h: what ends a communicator: a death, a timeout, an abort, a failure that leaves others
// waiting. It is written into the arena, the first one counts, and all ranks report the same. Does not know who waits.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "base/error.h"
#include "comm/shm/members/recorder.h"
#include "comm/shm/wait/elsewhere.h"

namespace gsel::shm {

class Breaking {
 public:
  Breaking(const Membership& members, const FlightRecorder& recorder) : at_(members), recorder_(recorder) {}

  void throw_if_broken() const {
    if (at_.is_broken()) throw_broken();
  }
  [[noreturn]] void throw_broken() const;
  // about: a rank of this communicator, or -1: nobody in particular.
  [[noreturn]] void break_with(gsel_status code, int32_t about, const std::string& text) const;
  void mark(gsel_status code, int32_t about, const std::string& text) const noexcept;
  // The same about a rank that need not be a member: as texts show it, and as rank of the family.
  // elsewhere: where it is a rank of another family, -1 in this one.
  void write(gsel_status code, int32_t shown, int32_t family_rank, const std::string& text,
             const HeldElsewhere* elsewhere = nullptr) const noexcept;
  // Any thread. about: as errors show it; -1: this rank.
  void abort(const char* reason, int32_t about) noexcept;

  // A member's process has ended; from the watcher's thread or from a rank that looks for itself.
  void on_member_exit(int32_t family_rank) const noexcept;
  void look_at_all() const;

  // Waits until the communicator is broken, or somebody wakes this rank, or for so long at most.
  bool await(int64_t nanoseconds) const;
  // Wakes who waits for a rank, and a rank that waits for any of several.
  static void wake(RankBlock& block) noexcept;
  static void wake_listener(RankBlock& block) noexcept;
  void wake_all() const noexcept;
  // This rank has left.
  void leave(const Arena& arena) const noexcept;

 private:
  const Membership& at_;
  const FlightRecorder& recorder_;
};

}  // namespace gsel::shm
