// comm/shm/regroup/reform.cc: communicators made from a broken one (shrink, and create_group of one that is broken),
// and a broken one made usable again (resync). A new communicator stays in the family, so it is an arena in the
// family's memory: one rank, the founder, makes the arena with all members filled in, and tells the others its place.
//
// In a broken communicator, ranks can rely only on single words. Each rank has one word that says whether it is in the
// new communicator. A rank moves its own word from open to in. A rank that waits for it moves the word to out if that
// rank is dead, has left or is late. The first move counts for all. Once all words have moved, all ranks know the same
// members. The lowest member makes the new arena and writes its place to the header of the old one. If it cannot, the
// next member does, and again the first write counts. Ranks that are to be left out are moved to out at the beginning.
//
// A group has a number made from its ranks and from how many of these ranks there have been. Its first rank is the
// founder. A member writes the number of the group that it waits for; when all have, the founder makes the arena,
// writes its place and then the number, and waits until the members that live have found it.
#include <algorithm>

#include "base/text.h"
#include "comm/shm/link.h"
#include "comm/shm/name.h"
#include "comm/shm/wait/watcher.h"

namespace gsel::shm {
namespace {

constexpr int64_t kLookNs = 1'000'000;
constexpr int64_t kDyingNs = 20'000'000;

// A word of the roll: what, and of those out why and by whom.
enum : uint32_t { kOpen = 0, kIn = 1, kDied = 2, kLeft = 3, kLate = 4, kNamed = 5 };
uint32_t decision_of(uint32_t word) {
  return word & 0xff;
}
int32_t decided_by(uint32_t word) {
  return static_cast<int32_t>(word >> 8);
}

}  // namespace

// Whoever shrinks a communicator that nobody has broken mostly knows of a death; the others are to hear of that and not
// of the shrink.
Link::Membership Link::shrink(const std::vector<int32_t>& without) {
  require_own_process("gsel_comm_shrink");
  if (std::exchange(shrunk_, true))
    fail(GSEL_ERR_STATE, "gsel_comm_shrink: this communicator has been shrunk already; go on with what came of it");
  look_at_all();
  if (without.empty() && world_size_ > 1 && !is_broken() && !await_break(kDyingNs)) look_at_all();
  break_for(without.empty() ? "asked for a shrink" : fmt::format("asked for a shrink without {}", named(without[0])),
            "gsel_comm_shrink");
  const Engine::Turn turn(*engine_);
  abandon_messages();
  leave_out(without);
  std::vector<int32_t> members;
  const std::vector<uint32_t> roll = call_the_roll(&RankBlock::reform);
  for (int32_t q = 0; q < world_size_; ++q) {
    const uint32_t decision = decision_of(roll[static_cast<size_t>(q)]);
    if (decision == kIn) members.push_back(q);
    if (decision == kLate || decision == kNamed) family_->leave_behind();
  }
  const uint32_t own = roll[static_cast<size_t>(rank_)];
  if (decision_of(own) != kIn)
    throw Error(GSEL_ERR_PEER,
                fmt::format("{} was left behind by a shrink: {}; join anew", named(rank_), why(own, rank_)))
        .about_rank(shown(decided_by(own)));
  const std::string name = derived_name(this->name(), "shrink");
  return membership_in(members, members.size() == 1 ? 0 : successor(members, name), name, numbering_);
}

void Link::resync() {
  require_own_process("gsel_comm_resync");
  if (world_size_ == 1) return adopt(membership_in({rank_}, 0, name(), numbering_).arena);
  if (shrunk_) fail(GSEL_ERR_STATE, "gsel_comm_resync: this communicator has been shrunk; go on with what came of it");
  break_for("asked for a resync", "gsel_comm_resync");
  const Engine::Turn turn(*engine_);
  abandon_messages();
  std::vector<int32_t> members;
  const std::vector<uint32_t> roll = call_the_roll(&RankBlock::resync);
  for (int32_t q = 0; q < world_size_; ++q) {
    const uint32_t word = roll[static_cast<size_t>(q)];
    if (decision_of(word) != kIn)
      throw Error(decision_of(word) == kLate ? GSEL_ERR_TIMEOUT : GSEL_ERR_PEER,
                  fmt::format("gsel_comm_resync without {}: {}; use gsel_comm_shrink", who(q), why(word, q)))
          .about_rank(shown(q));
    members.push_back(q);
  }
  adopt(membership_in(members, successor(members, name()), name(), numbering_).arena);
}

// One that shrinks itself cannot be left out: it may have gone on with others already.
void Link::leave_out(const std::vector<int32_t>& without) {
  const uint32_t by_me = static_cast<uint32_t>(rank_) << 8;
  for (const int32_t q : without) {
    uint32_t known = kOpen;
    if (arena_->rank(q).reform.compare_exchange_strong(known, kNamed | by_me, std::memory_order_seq_cst)) continue;
    if (decision_of(known) != kIn) continue;
    uint32_t open = kOpen;
    mine().reform.compare_exchange_strong(open, kLeft | by_me,
                                          std::memory_order_seq_cst);  // nobody waits for this rank
    wake_all();
    throw Error(
        GSEL_ERR_MISMATCH,
        fmt::format("gsel_comm_shrink_without: {} leaves {} out, which shrinks the communicator itself; leave out "
                    "ranks that do not call",
                    named(rank_), named(q)))
        .about_rank(shown(q));
  }
}

void Link::break_for(const std::string& purpose, const char* remedy) const {
  std::string text = fmt::format("{} {}", named(rank_), purpose);
  for (int32_t q = 0; q < world_size_; ++q)
    if (q != rank_ && arena_->rank(q).latest_number.load(std::memory_order_relaxed) % 2 == 0) {
      text += fmt::format(" while {} {}", named(q), activity_of(q));
      break;
    }
  mark_broken(GSEL_ERR_STATE, rank_, fmt::format("{}; call {} on every rank", text, remedy));
}

// Every rank's word, none of them open.
std::vector<uint32_t> Link::call_the_roll(Word word) {
  uint32_t open = kOpen;
  (mine().*word).compare_exchange_strong(open, kIn, std::memory_order_seq_cst);
  wake_all();
  const int64_t deadline = os::now_ns() + timeout_ns_.load();
  std::vector<uint32_t> roll(ranks());
  for (int32_t q = 0; q < world_size_; ++q)
    look_until([&] {
      roll[static_cast<size_t>(q)] = decide(word, q, deadline);
      if (roll[static_cast<size_t>(q)] != kOpen) return true;
      if (word == &RankBlock::resync) refuse_if_shrinking();
      return false;
    });
  return roll;
}

uint32_t Link::decide(Word word, int32_t rank, int64_t deadline_ns) const {
  std::atomic<uint32_t>& theirs = arena_->rank(rank).*word;
  uint32_t known = theirs.load(std::memory_order_seq_cst);
  if (known != kOpen) return known;
  uint32_t verdict = kOpen;
  if (arena_->rank(rank).left.load(std::memory_order_acquire) != 0)
    verdict = kLeft;
  else if (family_->ended(arena_->rank(rank).family_rank))
    verdict = kDied;
  else if (os::now_ns() >= deadline_ns)
    verdict = kLate;
  if (verdict == kOpen) return kOpen;
  verdict |= static_cast<uint32_t>(rank_) << 8;
  if (!theirs.compare_exchange_strong(known, verdict, std::memory_order_seq_cst)) return known;
  wake_all();
  return verdict;
}

std::string Link::why(uint32_t word, int32_t rank) const {
  switch (decision_of(word)) {
    case kDied:
      return fmt::format("{} found it dead", named(decided_by(word)));
    case kLeft:
      return fmt::format("{} found that it had left", named(decided_by(word)));
    case kNamed:
      return fmt::format("{} left it out", named(decided_by(word)));
    default:
      return fmt::format("{} waited for it until the timeout; it {}", who(decided_by(word)), activity_of(rank));
  }
}

void Link::refuse_if_shrinking() const {
  for (int32_t q = 0; q < world_size_; ++q)
    if (decision_of(arena_->rank(q).reform.load(std::memory_order_acquire)) == kIn)
      throw Error(
          GSEL_ERR_STATE,
          fmt::format("gsel_comm_resync: {} shrinks the communicator; call gsel_comm_shrink here too", named(q)))
          .about_rank(shown(q));
}

// Where the communicator of these ranks stands, which are in; founds it when it is this rank's turn.
uint64_t Link::successor(const std::vector<int32_t>& members, const std::string& name) const {
  const std::atomic<uint64_t>& told = arena_->header().successor;
  const int64_t deadline = os::now_ns() + timeout_ns_.load();
  const auto next = [&] {
    return *std::ranges::find_if(members, [&](int32_t q) {
      const RankBlock& block = arena_->rank(q);
      return q == rank_ || (block.left.load(std::memory_order_acquire) == 0 && !family_->ended(block.family_rank));
    });
  };
  uint64_t offset = 0;
  look_until([&] {
    offset = told.load(std::memory_order_acquire);
    if (offset == 0 && (next() == rank_ || os::now_ns() >= deadline)) offset = publish_successor(members, name);
    return offset != 0;
  });
  return offset;
}

uint64_t Link::publish_successor(const std::vector<int32_t>& members, const std::string& name) const {
  const uint64_t offset = found(members, name, numbering_.get());
  uint64_t other = 0;
  if (!arena_->header().successor.compare_exchange_strong(other, offset, std::memory_order_acq_rel)) {
    family_->release(offset);
    return other;
  }
  keep_while_used(offset, static_cast<int32_t>(members.size()));
  wake_all();
  return offset;
}

Link::Membership Link::create_group_in_broken(const std::vector<int32_t>& members, const std::string& name) {
  const Engine::Turn turn(*engine_);
  abandon_messages();
  uint64_t& made = groups_made_[members];
  uint64_t number = made + 1;
  for (const int32_t q : members) number = (number ^ static_cast<uint64_t>(q + 1)) * 0x100000001b3u;
  const int32_t founder = members.front();
  const int64_t deadline = os::now_ns() + timeout_ns_.load();
  RankBlock& me = mine();
  uint64_t offset = 0;
  if (rank_ != founder) {
    me.group_wanted.store(number, std::memory_order_seq_cst);
    wake_all();
    await_for_group(founder, deadline, &RankBlock::group_founded, number);
    offset = arena_->rank(founder).group_place.load(std::memory_order_relaxed);
    me.group_found.store(number, std::memory_order_seq_cst);
    wake_all();
  } else {
    for (const int32_t q : members)
      if (q != rank_) await_for_group(q, deadline, &RankBlock::group_wanted, number);
    std::optional<Error> problem;
    try {
      offset = found(members, name, numbering_.get());
      keep_while_used(offset, static_cast<int32_t>(members.size()));
    } catch (const Error& e) {
      problem = e;
    }
    me.group_place.store(offset, std::memory_order_relaxed);
    me.group_founded.store(number, std::memory_order_seq_cst);
    wake_all();
    for (const int32_t q : members) try {
        if (q != rank_) await_for_group(q, deadline, &RankBlock::group_found, number);
      } catch (const Error&) {  // the new communicator tells who is gone
      }
    if (problem) throw *problem;
  }
  ++made;
  return membership_in(members, offset, name, numbering_);
}

void Link::await_for_group(int32_t rank, int64_t deadline_ns, std::atomic<uint64_t> RankBlock::*word,
                           uint64_t value) const {
  const RankBlock& other = arena_->rank(rank);
  const auto reached = [&] { return (other.*word).load(std::memory_order_seq_cst) == value; };
  look_until([&] {
    const bool left = other.left.load(std::memory_order_acquire) != 0, ended = family_->ended(other.family_rank);
    const bool late = os::now_ns() >= deadline_ns;
    if (reached()) return true;
    if (left || ended)
      throw Error(GSEL_ERR_PEER, fmt::format("{} {} while {} waited for it in gsel_comm_create_group()", who(rank),
                                             left ? "left" : kEnded, named(rank_)))
          .about_rank(shown(rank));
    if (late)
      throw Error(GSEL_ERR_TIMEOUT,
                  fmt::format("{} is late: {} waited {} for it in gsel_comm_create_group() of a broken communicator; "
                              "call it there with the same list",
                              who(rank), named(rank_), seconds_text(static_cast<double>(timeout_ns_.load()) / 1e9)))
          .about_rank(shown(rank));
    return false;
  });
}

// The link goes on in another arena, as if it had just begun. The old one is left, but not yet out of the hands of
// those who are still reading in it.
void Link::adopt(std::shared_ptr<Arena> next) {
  if (family_->watcher()) family_->watcher()->remove(*family_, *this);
  retract_wait();
  enter_communicator(*next);
  {
    std::lock_guard lock(arena_mutex_);
    arena_.swap(next);
  }
  leave_communicator(*next);
  leave(*next);
  sequence_ = chunks_ = 0;
  staging_reserved_ = false;
  if (family_->watcher()) family_->watcher()->add(*family_, *this);
}

void Link::leave(const Arena& arena) const noexcept {
  RankBlock& own = arena.rank(rank_);
  own.left.store(1, std::memory_order_seq_cst);
  wake(own);
  own.gone.store(1, std::memory_order_release);
}

// Looks, and sleeps in between until some rank wakes all or a moment has passed.
template <class Done>
void Link::look_until(Done&& done) const {
  for (;;) {
    const uint32_t word = mine().wake_word.load(std::memory_order_seq_cst);
    if (done()) return;
    os::futex_wait(mine().wake_word, word, kLookNs);
  }
}

}  // namespace gsel::shm
