// comm/shm/wait/breaking.h: breaks a communicator after a death, a timeout, an abort, or a failure that leaves others
// waiting. The first failure is written into the arena, and all ranks report it. Does not know which ranks wait.
#pragma once

#include <cstdint>
#include <string>

#include "comm/shm/members/recorder.h"
#include "comm/shm/memory/watcher.h"
#include "comm/shm/wait/elsewhere.h"

namespace gsel::shm {

class Breaking final : public ExitListener {
 public:
  Breaking(const Membership& members, const FlightRecorder& recorder) : at_(members), recorder_(recorder) {}

  void throw_if_broken() const {
    if (at_.is_broken()) throw_broken();
  }
  [[noreturn]] void throw_broken() const;
  // about: the rank of this communicator that caused the failure; -1: no particular rank.
  [[noreturn]] void break_with(gsel_status code, int32_t about, const std::string& text) const;
  void mark(gsel_status code, int32_t about, const std::string& text) const noexcept;
  // The same for a rank that need not be a member. shown: its number in texts. elsewhere: for a rank of another family,
  // with family_rank -1.
  void write(gsel_status code, int32_t shown, int32_t family_rank, const std::string& text,
             const HeldElsewhere* elsewhere = nullptr) const noexcept;
  // Any thread. about: numbered as in errors; -1: this rank.
  void abort(const char* reason, int32_t about) noexcept;

  // A member's process has ended. Called by the watcher's thread, or by look_at_all(), which checks all members.
  void on_member_exit(int32_t family_rank) const noexcept override;
  void look_at_all() const;

  // Waits until the communicator is broken, this rank is woken or the time has passed; whether it is broken.
  bool await(int64_t nanoseconds) const;
  // wake: wakes the ranks that wait for the owner of the block. wake_listener: wakes the owner if it waits for
  // messages.
  static void wake(RankBlock& block) noexcept;
  static void wake_listener(RankBlock& block) noexcept;
  void wake_all() const noexcept;
  // This rank leaves.
  void leave(const Arena& arena) const noexcept;

 private:
  const Membership& at_;
  const FlightRecorder& recorder_;
};

}  // namespace gsel::shm
