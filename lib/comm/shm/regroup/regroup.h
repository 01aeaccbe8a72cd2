// comm/shm/regroup/regroup.h: makes communicators from a working one (split.cc) or from a broken one, and repairs a
// broken one (reform.cc, broken_group.cc). Does not know what their ranks do.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/shm/engine/engine.h"

namespace gsel::shm {

class Regroup {
 public:
  Regroup(Membership& members, FlightRecorder& recorder, const Breaking& breaking, Signals& signals,
          Collectives& collectives, Mailbox& mailbox, Engine& engine, bool threads_allowed)
      : at_(members),
        recorder_(recorder),
        breaking_(breaking),
        signals_(signals),
        collectives_(collectives),
        mailbox_(mailbox),
        engine_(engine),
        threads_allowed_(threads_allowed) {}

  // See Control; each returns this rank's place in the new communicator. numbering: rank numbers in its errors;
  // nullptr: as Control says.
  std::optional<MemberPlace> split(int32_t colour, int32_t key, std::string_view label,
                                   std::shared_ptr<const Numbering> numbering = nullptr);
  MemberPlace create_group(const std::vector<int32_t>& members);
  MemberPlace dup();
  MemberPlace shrink(const std::vector<int32_t>& without);
  void resync();
  // Called by the driver.
  std::optional<MemberPlace> split_in_turn(int32_t colour, int32_t key) {
    return regroup(CallOrigin::split, {colour, key}, {});
  }
  MemberPlace dup_in_turn() { return *regroup(CallOrigin::dup, {0, 0}, {}); }

 private:
  // split.cc
  struct Wish {
    int32_t colour, key;
  };
  void pass_on(gsel_collective_kind kind, int32_t rank, uint64_t* words, uint64_t n);
  std::optional<MemberPlace> regroup(CallOrigin origin, Wish own, std::string_view label,
                                     std::shared_ptr<const Numbering> numbering = nullptr);
  std::string name_of_next(CallOrigin origin, std::string_view label, int32_t colour);
  uint64_t create_arena(const std::vector<int32_t>& members, const std::string& name, const Numbering* numbering) const;
  void keep_while_used(uint64_t offset, int32_t ranks) const;
  std::shared_ptr<Arena> arena_of_one(const std::string& name, const Numbering* numbering) const;
  MemberPlace place_in(const std::vector<int32_t>& members, uint64_t offset, const std::string& name,
                       std::shared_ptr<const Numbering> numbering) const;

  // reform.cc
  using Word = std::atomic<uint32_t> RankBlock::*;
  void break_for(const std::string& purpose, const char* remedy) const;
  void leave_out(const std::vector<int32_t>& without);
  std::vector<uint32_t> call_the_roll(Word word);
  uint32_t decide(Word word, int32_t rank, int64_t deadline_ns) const;
  std::string why(uint32_t word, int32_t rank) const;
  void refuse_if_shrinking() const;
  uint64_t successor(const std::vector<int32_t>& members, const std::string& name, const Numbering* numbering) const;
  uint64_t publish_successor(const std::vector<int32_t>& members, const std::string& name,
                             const Numbering* numbering) const;
  void adopt(std::shared_ptr<Arena> next);
  // Polls; sleeps between polls until a rank wakes all ranks or a millisecond has passed.
  template <class Done>
  void look_until(Done&& done) const {
    constexpr int64_t kLookNs = 1'000'000;
    for (;;) {
      const uint32_t word = at_.mine().wake_word.load(std::memory_order_seq_cst);
      if (done()) return;
      os::futex_wait(at_.mine().wake_word, word, kLookNs);
    }
  }

  // broken_group.cc
  MemberPlace create_group_in_broken(const std::vector<int32_t>& members, const std::string& name);
  uint64_t found_group(const std::vector<int32_t>& members, const std::string& name, int64_t deadline_ns) const;
  uint64_t await_founder(const std::vector<int32_t>& members, int64_t deadline_ns) const;
  std::optional<Error> why_not(const std::vector<int32_t>& members, uint64_t word, std::vector<int32_t>& silent,
                               int64_t deadline_ns) const;
  bool asks(int32_t rank, uint64_t word) const;
  bool take_all(const std::vector<int32_t>& members, uint64_t word) const;
  std::optional<int32_t> gone_of(const std::vector<int32_t>& members, const std::vector<int32_t>& silent) const;
  Error without_group(int32_t rank, bool gone) const;

  Membership& at_;
  FlightRecorder& recorder_;
  const Breaking& breaking_;
  Signals& signals_;
  Collectives& collectives_;
  Mailbox& mailbox_;
  Engine& engine_;
  const bool threads_allowed_;
  std::atomic<int> made_{0};  // number of splits, dups and groups so far
  bool shrunk_ = false;
};

}  // namespace gsel::shm
