// comm/shm/wait/elsewhere.h: that a rank waits in a communicator which was joined apart. The others cannot look into
// that one, so the rank writes into its block of every communicator that it has joined for whom it waits, in words.
//
// Ranks of two families are one if the same thread has joined both, and only what that thread itself waits for is told:
// another thread may wait for as long as it likes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "comm/shm/memory/arena.h"
#include "comm/shm/memory/family.h"

namespace gsel::shm {

// Who holds up a rank, in another family. No thread and no process has number 0.
struct HeldElsewhere {
  uint64_t person = 0;   // the thread that has joined,
  uint64_t process = 0;  // of that process
  std::string who;       // "rank 2 (pid 17) of communicator b is late"
  std::string where;     // "in communicator b rank 1 needs it for barrier() (call 3)"
  int64_t ended_ns = 0;  // when the wait failed; 0: it goes on
};

void write_record(ElsewhereRecord& record, const HeldElsewhere& held);
std::optional<HeldElsewhere> read_record(const ElsewhereRecord& record);  // none, where nobody holds the rank up

class Elsewhere {
 public:
  explicit Elsewhere(Family& family);  // entered by each communicator of it, on the thread that makes it
  ~Elsewhere();
  Elsewhere(const Elsewhere&) = delete;
  Elsewhere& operator=(const Elsewhere&) = delete;

  // Whether this process has joined another communicator as well.
  static bool anywhere() noexcept;
  // That the calling thread waits here, for the other families that it has joined.
  void tell(const HeldElsewhere& held);
  bool waits() const { return state_ == State::waits; }
  // It does not wait any more; `failed`: what is told stays, and the time counts.
  void end(bool failed) noexcept;

  // What a rank of this family tells.
  std::optional<HeldElsewhere> told_by(int32_t family_rank) const;
  // That thread, or that process where it has one rank here; -1: no rank of this family.
  int32_t find(uint64_t person, uint64_t process) const;
  uint64_t person(int32_t family_rank) const;

 private:
  Family& family_;
  enum class State { nothing, waits, failed } state_ = State::nothing;  // of what is told
};

}  // namespace gsel::shm
