// comm/shm/wait/chain.h: the chain of waits: where this rank waits, for others to find, and who is at the end of the
// chain that holds this rank up, through all communicators of the process.
//
// A rank that waits long says in its block of the communicator that was joined in which communicator it waits ("waits",
// the arena's place in the family's memory); for whom, it says in its block there. A wait for which no thread of the
// caller is blocked, such as that of a request nobody waits for yet, is marked: its rank may be late for another
// reason. A wait that failed stays where it is until the communicator is left, and the reason of the failure, which is
// in the arena, ends the chain. Into a communicator that was joined apart nobody else can look; what is told of it
// stands in elsewhere.h.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "comm/shm/wait/breaking.h"
#include "comm/shm/wait/elsewhere.h"

namespace gsel::shm {

constexpr uint64_t kBlocksCaller = 1;  // in a word of waits, whose places are of pages

struct ChainEnd {
  int32_t family_rank;           // who holds all up; -1: a rank of another family
  int32_t member;                // the last on the way that is of the communicator where the chain begins
  std::shared_ptr<Arena> arena;  // where it is waited for,
  int32_t waiter, rank;          // by whom, and as which rank
  bool gave_up;                  // the waiter has
  std::optional<HeldElsewhere> elsewhere = {};  // instead of an arena: in another family
};

class WaitChain {
 public:
  WaitChain(const Membership& members, const FlightRecorder& recorder, const Breaking& breaking)
      : at_(members), recorder_(recorder), breaking_(breaking), elsewhere_(members.family()) {}

  // For others that ask who holds them up: this rank waits for a flag of another in this communicator.
  void await(int32_t rank, const std::atomic<uint64_t>& flag, uint64_t value) noexcept;
  bool awaits() const { return at_.mine().awaited_rank.load(std::memory_order_relaxed) != 0; }
  void stop_awaiting() noexcept { at_.mine().awaited_rank.store(0, std::memory_order_release); }
  // That it waits in this communicator rather than in another one of the family; blocks_caller: see above.
  void publish(bool blocks_caller) noexcept;
  void end() noexcept;      // a wait that failed stays
  void retract() noexcept;  // also one that failed

  // The rank is late: breaks the communicator for who is at the end of the chain.
  [[noreturn]] void fail_late(int32_t rank, int64_t since_ns, const Call& call, uint64_t number);

 private:
  std::optional<ChainEnd> next(const ChainEnd& at, int64_t since_ns) const;
  std::optional<ChainEnd> held_up_in(const std::shared_ptr<Arena>& arena, int32_t waiter, int64_t since_ns) const;
  std::optional<ChainEnd> held_up_elsewhere(int32_t family_rank, int64_t since_ns) const;
  std::optional<ChainEnd> end_elsewhere(HeldElsewhere held, int32_t waiter, bool gave_up) const;
  ChainEnd end_of_chain(int32_t rank, int64_t since_ns) const;
  void tell_elsewhere(bool blocks_caller) noexcept;
  void tell_failure() noexcept;
  HeldElsewhere in_words(const ChainEnd& end, const char* state) const;
  std::string wait_of(const ChainEnd& end) const;

  const Membership& at_;
  const FlightRecorder& recorder_;
  const Breaking& breaking_;
  Elsewhere elsewhere_;
  int32_t slot_ = -1;     // of this rank's waits
  int64_t since_ns_ = 0;  // when it was first published
};

}  // namespace gsel::shm
