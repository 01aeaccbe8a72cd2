// comm/shm/regroup/broken_group.cc: gsel_comm_create_group of a communicator that is broken, whose ranks can rely only
// on single words (reform.cc).
//
// A group has a number made from its ranks and from how many of these ranks there have been. Its first rank is the
// founder. A member writes the number of the group that it waits for; when all have, the founder makes the arena,
// writes its place and then the number, and waits until the members that live have found it.
#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "base/text.h"
#include "comm/shm/regroup/regroup.h"

namespace gsel::shm {

MemberPlace Regroup::create_group_in_broken(const std::vector<int32_t>& members, const std::string& name) {
  const Engine::Turn turn(engine_);
  mailbox_.abandon();
  uint64_t& made = groups_made_[members];
  constexpr uint64_t kBasis = 0xcbf29ce484222325u, kPrime = 0x100000001b3u;
  uint64_t number = (kBasis ^ made) * kPrime;
  for (const int32_t q : members) number = (number ^ static_cast<uint64_t>(q + 1)) * kPrime;
  const int32_t founder = members.front();
  const int64_t deadline = os::now_ns() + signals_.timeout_ns();
  RankBlock& me = at_.mine();
  uint64_t offset = 0;
  me.group_wanted.store(number, std::memory_order_seq_cst);
  breaking_.wake_all();
  await_calls(members, deadline, number);
  if (at_.rank() != founder) {
    offset = at_.block(founder).group_place.load(std::memory_order_relaxed);
    me.group_found.store(number, std::memory_order_seq_cst);
    breaking_.wake_all();
  } else {
    std::optional<Error> problem;
    try {
      offset = found(members, name, at_.numbering().get());
      keep_while_used(offset, static_cast<int32_t>(members.size()));
    } catch (const Error& e) {
      problem = e;
    }
    me.group_place.store(offset, std::memory_order_relaxed);
    me.group_founded.store(number, std::memory_order_seq_cst);
    breaking_.wake_all();
    for (const int32_t q : members)
      if (q != at_.rank()) await_found(q, deadline, number);
    if (problem) {
      ++made;
      throw *problem;
    }
  }
  ++made;
  return place_in(members, offset, name, at_.numbering());
}

// A member that waits for another group already has found this one. The new communicator tells who is gone.
void Regroup::await_found(int32_t rank, int64_t deadline_ns, uint64_t number) const {
  const RankBlock& other = at_.block(rank);
  look_until([&] {
    return is_gone(rank) || os::now_ns() >= deadline_ns ||
           other.group_found.load(std::memory_order_seq_cst) == number ||
           other.group_wanted.load(std::memory_order_seq_cst) != number;
  });
}

// Until the founder has founded, or, of the founder, until all have called. A member is blamed that has not called, and
// the founder only if all have. Who has called may have given up since.
void Regroup::await_calls(const std::vector<int32_t>& members, int64_t deadline_ns, uint64_t number) const {
  const int32_t founder = members.front();
  std::vector<int32_t> missing = members;
  look_until([&] {
    const bool late = os::now_ns() >= deadline_ns;
    std::optional<int32_t> gone;
    std::erase_if(missing, [&](int32_t q) {
      const bool has_gone = is_gone(q);
      if (at_.block(q).group_wanted.load(std::memory_order_seq_cst) == number) return true;
      if (has_gone && !gone) gone = q;
      return false;
    });
    if (at_.rank() == founder ? missing.empty()
                              : at_.block(founder).group_founded.load(std::memory_order_seq_cst) == number)
      return true;
    if (!gone && at_.rank() != founder && is_gone(founder) &&
        at_.block(founder).group_founded.load(std::memory_order_seq_cst) != number)
      gone = founder;
    if (gone || late) throw without_group(gone ? *gone : missing.empty() ? founder : missing.front(), gone.has_value());
    return false;
  });
}

bool Regroup::is_gone(int32_t rank) const {
  const RankBlock& other = at_.block(rank);
  return other.left.load(std::memory_order_acquire) != 0 || at_.family().ended(other.family_rank);
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
