// comm/shm/regroup/broken_group.cc: gsel_comm_create_group on a broken communicator, whose ranks can rely only on
// single words (reform.cc).
//
// The first rank of a list is the founder of its group. Each member has one word: the list it asks for, and a state.
// The founder makes the group when all members ask: it moves their words from asking to taken, one after another. A
// member that gives up moves its word from asking back to idle, so that no stale word counts as a call. A member in
// state taken waits for the founder, which needs nothing more from it. The founder then writes the offset of the arena
// beside each word and moves the word to founded. A member that did not wait counts as having left the new
// communicator.
#include <algorithm>
#include <exception>
#include <optional>
#include <vector>

#include "base/text.h"
#include "comm/shm/regroup/regroup.h"

namespace gsel::shm {
namespace {

// The lowest bits of a word; the others are a hash of the list. 0: idle.
enum : uint64_t { kAsks = 1, kTaken = 2, kFounded = 3, kStates = 3 };

constexpr int64_t kFoundingNs = 1'000'000'000;  // additional wait of a member in state taken

uint64_t word_of(const std::vector<int32_t>& members) {
  constexpr uint64_t kBasis = 0xcbf29ce484222325u, kPrime = 0x100000001b3u;
  uint64_t word = kBasis;
  for (const int32_t q : members) word = (word ^ static_cast<uint64_t>(q + 1)) * kPrime;
  return word & ~kStates;
}

bool move_on(std::atomic<uint64_t>& word, uint64_t from, uint64_t to) {
  return word.compare_exchange_strong(from, to, std::memory_order_seq_cst);
}

}  // namespace

MemberPlace Regroup::create_group_in_broken(const std::vector<int32_t>& members, const std::string& name) {
  const Engine::Turn turn(engine_);
  mailbox_.abandon();
  const int64_t deadline = os::now_ns() + signals_.timeout_ns();
  at_.mine().group_word.store(word_of(members) | kAsks, std::memory_order_seq_cst);
  breaking_.wake_all();
  const uint64_t offset =
      members.front() == at_.rank() ? found_group(members, name, deadline) : await_founder(members, deadline);
  MemberPlace place = place_in(members, offset, name, at_.numbering());
  signals_.chain().retract();  // the failed wait no longer blocks the rank
  return place;
}

uint64_t Regroup::found_group(const std::vector<int32_t>& members, const std::string& name, int64_t deadline_ns) const {
  const uint64_t word = word_of(members);
  std::atomic<uint64_t>& own = at_.mine().group_word;
  std::vector<int32_t> silent = members;
  look_until([&] {
    if (take_all(members, word)) return true;
    const auto problem = why_not(members, word, silent, deadline_ns);
    if (!problem) return false;
    own.store(0, std::memory_order_seq_cst);
    throw Error(*problem);
  });
  std::exception_ptr problem;
  std::shared_ptr<Arena> arena;
  uint64_t offset = 0;
  try {
    offset = create_arena(members, name, at_.numbering().get());
    keep_while_used(offset, static_cast<int32_t>(members.size()));
    arena = place_in(members, offset, name, at_.numbering()).arena;
  } catch (...) {
    problem = std::current_exception();
  }
  for (size_t i = 0; i < members.size(); ++i) {
    RankBlock& member = at_.block(members[i]);
    member.group_place.store(problem ? 0 : offset, std::memory_order_relaxed);
    if (move_on(member.group_word, word | kTaken, word | kFounded) || problem) continue;
    RankBlock& absent = arena->rank(static_cast<int32_t>(i));
    absent.left.store(1, std::memory_order_seq_cst);
    absent.gone.store(1, std::memory_order_release);
  }
  own.store(0, std::memory_order_seq_cst);
  breaking_.wake_all();
  if (problem) std::rethrow_exception(problem);
  return offset;
}

// The offset of the arena; 0: the founder had no memory.
uint64_t Regroup::await_founder(const std::vector<int32_t>& members, int64_t deadline_ns) const {
  const uint64_t word = word_of(members);
  const int32_t founder = members.front();
  RankBlock& me = at_.mine();
  std::vector<int32_t> silent = members, nobody;
  look_until([&] {
    const uint64_t now = me.group_word.load(std::memory_order_seq_cst);
    if (now == (word | kFounded)) return true;
    const auto problem = now == (word | kTaken) ? why_not({founder}, word, nobody, deadline_ns + kFoundingNs)
                                                : why_not(members, word, silent, deadline_ns);
    if (!problem || !move_on(me.group_word, now, 0)) return false;
    throw Error(*problem);
  });
  const uint64_t offset = me.group_place.load(std::memory_order_relaxed);
  me.group_word.store(0, std::memory_order_seq_cst);
  return offset;
}

// The error that prevents the group, if a member is gone or the deadline has passed. `silent`: the members that have
// not been seen to ask. A member that has asked is not blamed for giving up while others are silent.
std::optional<Error> Regroup::why_not(const std::vector<int32_t>& members, uint64_t word, std::vector<int32_t>& silent,
                                      int64_t deadline_ns) const {
  std::erase_if(silent, [&](int32_t q) { return asks(q, word); });
  if (const auto gone = gone_of(members, silent.empty() ? members : silent)) return without_group(*gone, true);
  if (os::now_ns() < deadline_ns) return {};
  const auto idle = std::ranges::find_if(members, [&](int32_t q) { return !asks(q, word); });
  return without_group(!silent.empty() ? silent.front() : idle == members.end() ? members.front() : *idle, false);
}

bool Regroup::asks(int32_t rank, uint64_t word) const {
  const uint64_t now = at_.block(rank).group_word.load(std::memory_order_seq_cst);
  return now == (word | kAsks) || now == (word | kTaken);
}

// Whether all members ask and are taken now; if false, none is taken.
bool Regroup::take_all(const std::vector<int32_t>& members, uint64_t word) const {
  for (size_t i = 0; i < members.size(); ++i) {
    if (move_on(at_.block(members[i]).group_word, word | kAsks, word | kTaken)) continue;
    while (i-- > 0) move_on(at_.block(members[i]).group_word, word | kTaken, word | kAsks);
    return false;
  }
  return true;
}

// A dead member, else a member of `silent` that has left. It may have left because of a death, so deaths are checked
// after that.
std::optional<int32_t> Regroup::gone_of(const std::vector<int32_t>& members, const std::vector<int32_t>& silent) const {
  const auto has_left = [&](int32_t q) { return at_.block(q).left.load(std::memory_order_acquire) != 0; };
  const auto left = std::ranges::find_if(silent, has_left);
  const auto dead = std::ranges::find_if(
      members, [&](int32_t q) { return !has_left(q) && at_.family().ended(at_.block(q).family_rank); });
  if (dead != members.end()) return *dead;
  return left == silent.end() ? std::nullopt : std::optional(*left);
}

Error Regroup::without_group(int32_t rank, bool gone) const {
  const bool left = at_.block(rank).left.load(std::memory_order_acquire) != 0;
  if (gone)
    return Error(GSEL_ERR_PEER, fmt::format("{} {} while {} waited for it in gsel_comm_create_group()", at_.who(rank),
                                            left ? "left" : kEnded, at_.named(at_.rank())))
        .about_rank(at_.shown(rank));
  return Error(
             GSEL_ERR_TIMEOUT,
             fmt::format(
                 "timed out: {} is late: {} waited {} for it in gsel_comm_create_group() of a broken communicator; "
                 "call it there with the same list",
                 at_.who(rank), at_.named(at_.rank()), seconds_text(static_cast<double>(signals_.timeout_ns()) / 1e9)))
      .about_rank(at_.shown(rank));
}

}  // namespace gsel::shm
