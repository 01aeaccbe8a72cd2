// comm/shm/wait/elsewhere.h: waits across families. Ranks of one family cannot see the waits in another family, so a
// rank describes its wait, as text, in its block of every other communicator that it has joined.
//
// Ranks of two families are the same if one thread has joined both. Only waits of that thread are published, since the
// wait of another thread does not make the rank late.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "comm/shm/memory/arena.h"
#include "comm/shm/memory/family.h"

namespace gsel::shm {

// The rank of another family that a rank waits for. 0 is no valid person or process.
struct HeldElsewhere {
  uint64_t person = 0;   // the thread that has joined
  uint64_t process = 0;  // its process
  std::string who;       // "rank 2 (pid 17) of communicator b is late"
  std::string where;     // "in communicator b rank 1 needs it for barrier() (call 3)"
  int64_t ended_ns = 0;  // when the wait failed; 0: under way
};

void write_record(ElsewhereRecord& record, const HeldElsewhere& held);
std::optional<HeldElsewhere> read_record(const ElsewhereRecord& record);  // nullopt: no wait

class Elsewhere {
 public:
  explicit Elsewhere(Family& family);  // one for each communicator, on the thread that makes the communicator
  ~Elsewhere();
  Elsewhere(const Elsewhere&) = delete;
  Elsewhere& operator=(const Elsewhere&) = delete;

  // Whether this process is in more than one family.
  static bool anywhere() noexcept;
  // Publishes to the other families of the calling thread that it waits in this family.
  void tell(const HeldElsewhere& held);
  bool waits() const { return state_ == State::waits; }
  // Ends the wait. failed: the record stays, with the time of the failure.
  void end(bool failed) noexcept;

  // The wait that a rank of this family has published.
  std::optional<HeldElsewhere> told_by(int32_t family_rank) const;
  // The rank of that thread, or of that process if it has one rank here; -1: no rank of this family.
  int32_t find(uint64_t person, uint64_t process) const;
  uint64_t person(int32_t family_rank) const;

 private:
  Family& family_;
  enum class State { nothing, waits, failed } state_ = State::nothing;  // of the published wait
};

}  // namespace gsel::shm
