// comm/shm/regroup/reform.cc: communicators made from a broken one (shrink), and a broken one made usable again
// (resync). A new communicator stays in the family, so it is an arena in the family's memory: one rank, the founder,
// makes the arena with all members filled in, and tells the others its place.
//
// In a broken communicator, ranks can rely only on single words. Each rank has one word that decides whether it is in
// the new communicator. A rank moves its own word from open to in. Another rank that waits for it moves the word to out
// if the rank is dead, has left or is late. The first move counts for all ranks. When all words have moved, all ranks
// know the same members. The lowest member makes the new arena and writes its offset to the header of the old one. If
// that member cannot, the next one does, and again the first write counts. Ranks to be left out are moved to out at the
// beginning.
#include <algorithm>

#include "base/text.h"
#include "comm/shm/members/membership.h"
#include "comm/shm/memory/watcher.h"
#include "comm/shm/regroup/regroup.h"

namespace gsel::shm {
namespace {

constexpr int64_t kDyingNs = 20'000'000;

// The decision in the low byte of a word: open, in, or the reason for out. The deciding rank is in the upper bits.
enum : uint32_t { kOpen = 0, kIn = 1, kDied = 2, kLeft = 3, kLate = 4, kNamed = 5 };
uint32_t decision_of(uint32_t word) {
  return word & 0xff;
}
int32_t decided_by(uint32_t word) {
  return static_cast<int32_t>(word >> 8);
}

}  // namespace

// A shrink of a communicator that is not broken mostly follows a death. So it waits a moment for that death, which then
// breaks the communicator instead of the shrink.
MemberPlace Regroup::shrink(const std::vector<int32_t>& without) {
  at_.require_own_process("gsel_comm_shrink");
  if (std::exchange(shrunk_, true))
    fail(GSEL_ERR_STATE, "gsel_comm_shrink: this communicator has been shrunk already; use the new communicator");
  breaking_.look_at_all();
  if (without.empty() && at_.world_size() > 1 && !at_.is_broken() && !breaking_.await(kDyingNs))
    breaking_.look_at_all();
  break_for(
      without.empty() ? "asked for a shrink" : fmt::format("asked for a shrink without {}", at_.named(without[0])),
      "gsel_comm_shrink");
  const Engine::Turn turn(engine_);
  mailbox_.abandon();
  leave_out(without);
  std::vector<int32_t> members;
  const std::vector<uint32_t> roll = call_the_roll(&RankBlock::reform);
  for (int32_t q = 0; q < at_.world_size(); ++q) {
    const uint32_t decision = decision_of(roll[static_cast<size_t>(q)]);
    if (decision == kIn) members.push_back(q);
    if (decision == kLate || decision == kNamed) at_.family().leave_behind();
  }
  const uint32_t own = roll[static_cast<size_t>(at_.rank())];
  if (decision_of(own) != kIn)
    throw Error(GSEL_ERR_PEER, fmt::format("{} was left behind by a shrink: {}; join again", at_.named(at_.rank()),
                                           why(own, at_.rank())))
        .about_rank(at_.shown(decided_by(own)));
  const std::string name = derived_name(at_.name(), "shrink");
  MemberPlace place = place_in(members, members.size() == 1 ? 0 : successor(members, name, at_.numbering().get()), name,
                               at_.numbering());
  signals_.chain().retract();  // the failed wait no longer blocks the rank
  return place;
}

void Regroup::resync() {
  at_.require_own_process("gsel_comm_resync");
  if (at_.world_size() == 1) {
    const Engine::Turn turn(engine_);
    return adopt(place_in({at_.rank()}, 0, at_.name(), at_.own_numbering()).arena);
  }
  if (shrunk_) fail(GSEL_ERR_STATE, "gsel_comm_resync: this communicator has been shrunk; use the new communicator");
  break_for("asked for a resync", "gsel_comm_resync");
  const Engine::Turn turn(engine_);
  mailbox_.abandon();
  std::vector<int32_t> members;
  const std::vector<uint32_t> roll = call_the_roll(&RankBlock::resync);
  for (int32_t q = 0; q < at_.world_size(); ++q) {
    const uint32_t word = roll[static_cast<size_t>(q)];
    if (decision_of(word) != kIn)
      throw Error(decision_of(word) == kLate ? GSEL_ERR_TIMEOUT : GSEL_ERR_PEER,
                  fmt::format("gsel_comm_resync without {}: {}; use gsel_comm_shrink", at_.who(q), why(word, q)))
          .about_rank(at_.shown(q));
    members.push_back(q);
  }
  const auto as_before = at_.own_numbering();
  adopt(place_in(members, successor(members, at_.name(), as_before.get()), at_.name(), as_before).arena);
}

// A rank that calls shrink itself cannot be left out: it may already be in the new communicator with others.
void Regroup::leave_out(const std::vector<int32_t>& without) {
  const uint32_t by_me = static_cast<uint32_t>(at_.rank()) << 8;
  for (const int32_t q : without) {
    uint32_t known = kOpen;
    if (at_.block(q).reform.compare_exchange_strong(known, kNamed | by_me, std::memory_order_seq_cst)) continue;
    if (decision_of(known) != kIn) continue;
    uint32_t open = kOpen;
    // So that no rank waits for this one.
    at_.mine().reform.compare_exchange_strong(open, kLeft | by_me, std::memory_order_seq_cst);
    breaking_.wake_all();
    throw Error(
        GSEL_ERR_MISMATCH,
        fmt::format("gsel_comm_shrink_without: {} leaves {} out, which shrinks the communicator itself; leave out "
                    "ranks that do not call",
                    at_.named(at_.rank()), at_.named(q)))
        .about_rank(at_.shown(q));
  }
}

void Regroup::break_for(const std::string& purpose, const char* remedy) const {
  std::string text = fmt::format("{} {}", at_.named(at_.rank()), purpose);
  for (int32_t q = 0; q < at_.world_size(); ++q)
    if (q != at_.rank() && at_.block(q).latest_number.load(std::memory_order_relaxed) % 2 == 0) {
      text += fmt::format(" while {} {}", at_.named(q), recorder_.activity_of(q));
      break;
    }
  breaking_.mark(GSEL_ERR_STATE, at_.rank(), fmt::format("{}; call {} on every rank", text, remedy));
}

// Waits until no rank's word is open and returns all words.
std::vector<uint32_t> Regroup::call_the_roll(Word word) {
  uint32_t open = kOpen;
  (at_.mine().*word).compare_exchange_strong(open, kIn, std::memory_order_seq_cst);
  breaking_.wake_all();
  const int64_t deadline = os::now_ns() + signals_.timeout_ns();
  std::vector<uint32_t> roll(at_.ranks());
  for (int32_t q = 0; q < at_.world_size(); ++q)
    look_until([&] {
      roll[static_cast<size_t>(q)] = decide(word, q, deadline);
      if (roll[static_cast<size_t>(q)] != kOpen) return true;
      if (word == &RankBlock::resync) refuse_if_shrinking();
      return false;
    });
  return roll;
}

uint32_t Regroup::decide(Word word, int32_t rank, int64_t deadline_ns) const {
  std::atomic<uint32_t>& theirs = at_.block(rank).*word;
  uint32_t known = theirs.load(std::memory_order_seq_cst);
  if (known != kOpen) return known;
  uint32_t verdict = kOpen;
  if (at_.block(rank).left.load(std::memory_order_acquire) != 0)
    verdict = kLeft;
  else if (at_.family().ended(at_.block(rank).family_rank))
    verdict = kDied;
  else if (os::now_ns() >= deadline_ns)
    verdict = kLate;
  if (verdict == kOpen) return kOpen;
  verdict |= static_cast<uint32_t>(at_.rank()) << 8;
  if (!theirs.compare_exchange_strong(known, verdict, std::memory_order_seq_cst)) return known;
  breaking_.wake_all();
  return verdict;
}

std::string Regroup::why(uint32_t word, int32_t rank) const {
  switch (decision_of(word)) {
    case kDied:
      return fmt::format("{} found it dead", at_.named(decided_by(word)));
    case kLeft:
      return fmt::format("{} found that it had left", at_.named(decided_by(word)));
    case kNamed:
      return fmt::format("{} left it out", at_.named(decided_by(word)));
    default:
      return fmt::format("{} waited for it until the timeout; it {}", at_.who(decided_by(word)),
                         recorder_.activity_of(rank));
  }
}

void Regroup::refuse_if_shrinking() const {
  for (int32_t q = 0; q < at_.world_size(); ++q)
    if (decision_of(at_.block(q).reform.load(std::memory_order_acquire)) == kIn)
      throw Error(
          GSEL_ERR_STATE,
          fmt::format("gsel_comm_resync: {} shrinks the communicator; call gsel_comm_shrink here too", at_.named(q)))
          .about_rank(at_.shown(q));
}

// The offset of the successor's arena. Makes the arena if it is this rank's turn.
uint64_t Regroup::successor(const std::vector<int32_t>& members, const std::string& name,
                            const Numbering* numbering) const {
  const std::atomic<uint64_t>& told = at_.header().successor;
  const int64_t deadline = os::now_ns() + signals_.timeout_ns();
  const auto next = [&] {
    return *std::ranges::find_if(members, [&](int32_t q) {
      const RankBlock& block = at_.block(q);
      return q == at_.rank() ||
             (block.left.load(std::memory_order_acquire) == 0 && !at_.family().ended(block.family_rank));
    });
  };
  uint64_t offset = 0;
  look_until([&] {
    offset = told.load(std::memory_order_acquire);
    if (offset == 0 && (next() == at_.rank() || os::now_ns() >= deadline))
      offset = publish_successor(members, name, numbering);
    return offset != 0;
  });
  return offset;
}

uint64_t Regroup::publish_successor(const std::vector<int32_t>& members, const std::string& name,
                                    const Numbering* numbering) const {
  const uint64_t offset = create_arena(members, name, numbering);
  uint64_t other = 0;
  if (!at_.header().successor.compare_exchange_strong(other, offset, std::memory_order_acq_rel)) {
    at_.family().release(offset);
    return other;
  }
  keep_while_used(offset, static_cast<int32_t>(members.size()));
  breaking_.wake_all();
  return offset;
}

// Continues the communicator in a new arena, as if it had just been made. Leaves the old arena, which stays valid while
// other threads hold it.
void Regroup::adopt(std::shared_ptr<Arena> next) {
  Watcher* const watcher = at_.family().watcher();
  if (watcher) watcher->remove(at_.family(), breaking_);
  signals_.chain().retract();
  enter_communicator(*next);
  const std::shared_ptr<Arena> before = at_.exchange_arena(std::move(next));
  leave_communicator(*before);
  breaking_.leave(*before);
  collectives_.reset_count();
  if (watcher) watcher->add(at_.family(), breaking_);
}

}  // namespace gsel::shm
