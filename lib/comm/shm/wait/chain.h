// comm/shm/wait/chain.h: the chain of waits: publishes what this rank waits for, and finds the last rank of the chain
// of waits that blocks this rank, through all communicators of the process.
//
// A rank that waits long publishes the communicator it waits in (RankBlock::waits in the joined communicator, the
// arena's offset in the family's memory) and the rank it waits for (in its block of that communicator). A wait that
// blocks no thread of the caller, such as that of a request nobody waits for yet, is marked: its rank may be late for
// another reason. A failed wait stays published until the communicator is left; its failure, which is in the arena,
// ends the chain. Waits in communicators that were joined separately are published through elsewhere.h.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "comm/shm/wait/breaking.h"
#include "comm/shm/wait/elsewhere.h"

namespace gsel::shm {

constexpr uint64_t kBlocksCaller = 1;  // a bit in RankBlock::waits; the offsets there are page aligned

struct ChainEnd {
  int32_t family_rank;           // the last rank of the chain; -1: a rank of another family
  int32_t member;                // the last rank of the chain that is in the communicator where the chain begins
  std::shared_ptr<Arena> arena;  // the communicator in which the last rank is waited for
  int32_t waiter, rank;          // there: the rank that waits, and the last rank
  bool gave_up;                  // the wait has failed
  std::optional<HeldElsewhere> elsewhere = {};  // instead of arena: a wait in another family
};

class WaitChain {
 public:
  WaitChain(const Membership& members, const FlightRecorder& recorder, const Breaking& breaking)
      : at_(members), recorder_(recorder), breaking_(breaking), elsewhere_(members.family()) {}

  // Publishes in this communicator that this rank waits for a flag of another rank.
  void await(int32_t rank, const std::atomic<uint64_t>& flag, uint64_t value) noexcept;
  bool awaits() const { return at_.mine().awaited_rank.load(std::memory_order_relaxed) != 0; }
  void stop_awaiting() noexcept { at_.mine().awaited_rank.store(0, std::memory_order_release); }
  // Publishes that this rank waits in this communicator. blocks_caller: a thread of the caller is blocked.
  void publish(bool blocks_caller) noexcept;
  void end() noexcept;      // retracts the wait unless it failed
  void retract() noexcept;  // also a failed wait

  // A wait for the rank timed out: breaks the communicator and blames the last rank of the chain.
  [[noreturn]] void fail_late(int32_t rank, int64_t since_ns, const Call& call, uint64_t number);

 private:
  std::optional<ChainEnd> next(const ChainEnd& at, int64_t since_ns) const;
  std::optional<ChainEnd> waits_in_arena(const std::shared_ptr<Arena>& arena, int32_t waiter, int64_t since_ns) const;
  std::optional<ChainEnd> waits_in_family(int32_t family_rank, int64_t since_ns) const;
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
  int32_t slot_ = -1;     // index in this rank's waits
  int64_t since_ns_ = 0;  // when the wait was first published
};

}  // namespace gsel::shm
