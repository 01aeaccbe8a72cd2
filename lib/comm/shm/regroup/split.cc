// comm/shm/regroup/split.cc: communicators made from a working one. They stay in its family, so a new one is an arena
// in the family's memory: one of its ranks, the founder, makes the arena with all members filled in, and tells the
// others its offset. This takes two exchanges on the old communicator: the colours and keys, and the offsets of the
// arenas.
#include <algorithm>
#include <cstdint>

#include "base/log.h"
#include "comm/shm/members/membership.h"
#include "comm/shm/regroup/regroup.h"

namespace gsel::shm {
namespace {

constexpr int32_t kGroupTag = INT32_MIN;  // of messages of create_group

template <class Choice>
std::vector<int32_t> ranks_of(const std::vector<Choice>& choices, int32_t colour) {
  std::vector<int32_t> members;
  for (size_t q = 0; q < choices.size(); ++q)
    if (colour >= 0 && choices[q].colour == colour) members.push_back(static_cast<int32_t>(q));
  std::ranges::stable_sort(members, {}, [&](int32_t q) { return choices[static_cast<size_t>(q)].key; });
  return members;
}

// Whether an arena may be released: each rank has either set `gone` or ended.
bool nobody_in(const Arena& arena, const Family& family) {
  for (int32_t q = 0; q < arena.layout().world_size; ++q)
    if (arena.rank(q).gone.load(std::memory_order_acquire) == 0 && !family.ended(arena.rank(q).family_rank))
      return false;
  return true;
}

}  // namespace

std::optional<MemberPlace> Regroup::split(int32_t colour, int32_t key, std::string_view label,
                                          std::shared_ptr<const Numbering> numbering) {
  at_.require_own_process("gsel_comm_split");
  const Engine::Turn turn(engine_);
  return regroup(CallOrigin::split, {colour, key}, label, std::move(numbering));
}

MemberPlace Regroup::dup() {
  at_.require_own_process("gsel_comm_dup");
  const Engine::Turn turn(engine_);
  return dup_in_turn();
}

// label: empty for a communicator of the caller's.
std::optional<MemberPlace> Regroup::regroup(CallOrigin origin, Wish own, std::string_view label,
                                            std::shared_ptr<const Numbering> numbering) {
  std::vector<Wish> choices(at_.ranks());
  collectives_.exchange(origin, &own, choices.data(), sizeof own);
  const std::vector<int32_t> members = ranks_of(choices, own.colour);
  const std::string name = name_of_next(origin, label, own.colour);
  if (!numbering) numbering = label.empty() ? at_.numbering() : at_.own_numbering();
  std::optional<Error> problem;
  uint64_t offset = 0;
  if (members.size() > 1 && members.front() == at_.rank()) try {
      offset = create_arena(members, name, numbering.get());
      keep_while_used(offset, static_cast<int32_t>(members.size()));
    } catch (const Error& e) {
      problem = e;
    }
  std::vector<uint64_t> offsets(at_.ranks());
  collectives_.exchange(origin, &offset, offsets.data(), sizeof offset);
  if (problem) throw *problem;
  if (members.empty()) return std::nullopt;
  return place_in(members, offsets[static_cast<size_t>(members.front())], name, numbering);
}

std::string Regroup::name_of_next(CallOrigin origin, std::string_view label, int32_t colour) {
  const int number = ++made_;
  if (origin == CallOrigin::dup) return derived_name(at_.name(), fmt::format("dup{}", number));
  return derived_name(at_.name(), fmt::format("{}{}:{}", label.empty() ? "split" : label, number, colour));
}

// A message between members of a new group; other ranks do not take part.
void Regroup::pass_on(gsel_collective_kind kind, int32_t rank, uint64_t* words, uint64_t n) {
  gsel_collective call{};
  call.kind = kind;
  call.dtype = GSEL_U64;
  call.root = rank;
  call.source = -1;
  if (kind == GSEL_COLLECTIVE_SEND)
    call.send = words;
  else
    call.recv = words;
  call.count = n;
  call.tag = kGroupTag;
  call.label = {"create_group", 12};
  engine_.call(call);
}

// The first member receives a hash of each member's list, makes the arena and sends its offset to all.
MemberPlace Regroup::create_group(const std::vector<int32_t>& members) {
  at_.require_own_process("gsel_comm_create_group");
  const std::string name = derived_name(at_.name(), fmt::format("group{}", ++made_));
  if (members.size() == 1) return place_in(members, 0, name, at_.numbering());
  if (at_.is_broken()) return create_group_in_broken(members, name);
  const int32_t founder = members.front();
  uint64_t list = members.size();
  for (const int32_t q : members) list = (list ^ static_cast<uint64_t>(q)) * 0x100000001b3u;
  uint64_t answer[2] = {};  // offset of the arena; the rank with another list, + 1
  if (at_.rank() != founder) {
    pass_on(GSEL_COLLECTIVE_SEND, founder, &list, 1);
    pass_on(GSEL_COLLECTIVE_RECV, founder, answer, 2);
  } else {
    std::optional<Error> problem;
    for (size_t i = 1; i < members.size(); ++i) {
      uint64_t theirs = 0;
      pass_on(GSEL_COLLECTIVE_RECV, members[i], &theirs, 1);
      if (theirs != list && answer[1] == 0) answer[1] = static_cast<uint64_t>(members[i]) + 1;
    }
    if (answer[1] == 0) try {
        answer[0] = create_arena(members, name, at_.numbering().get());
        keep_while_used(answer[0], static_cast<int32_t>(members.size()));
      } catch (const Error& e) {
        problem = e;
      }
    for (size_t i = 1; i < members.size(); ++i) pass_on(GSEL_COLLECTIVE_SEND, members[i], answer, 2);
    if (problem) throw *problem;
  }
  if (answer[1] == 0) return place_in(members, answer[0], name, at_.numbering());
  const auto odd = static_cast<int32_t>(answer[1]) - 1;
  throw Error(GSEL_ERR_MISMATCH,
              fmt::format("gsel_comm_create_group: {} and {} give other lists of ranks; give the same on each",
                          at_.named(founder), at_.named(odd)))
      .about_rank(at_.shown(odd));
}

// Makes the arena of a communicator of these ranks in this rank's shared memory; returns its offset.
uint64_t Regroup::create_arena(const std::vector<int32_t>& members, const std::string& name,
                               const Numbering* numbering) const {
  const Layout layout(static_cast<int32_t>(members.size()));
  std::vector<Seat> seats;
  for (const int32_t q : members) {
    const RankBlock& block = at_.block(q);
    seats.push_back({block.pid, block.family_rank,
                     numbering ? numbering->of_family[static_cast<size_t>(block.family_rank)]
                               : static_cast<int32_t>(seats.size())});
  }
  const SharedMemory& memory = *at_.family().memory();
  const uint64_t offset = at_.family().allocate(layout.total_bytes);
  try {
    memory.reserve(offset, layout.reserved_bytes(), "a communicator");
  } catch (...) {
    at_.family().release(offset);
    throw;
  }
  Arena::create(memory.at(offset), layout, at_.header(), seats, name);
  return offset;
}

void Regroup::keep_while_used(uint64_t offset, int32_t ranks) const {
  const auto& memory = at_.family().memory();
  at_.family().release_once(offset, [arena = Arena::at(memory->at(offset), Layout(ranks), memory),
                                     family = &at_.family()] { return nobody_in(*arena, *family); });
}

// What is made from a part of a communicator over several hosts may be such a part as well, so that its recording has
// to be found from outside: in the memory of the family, or in memory of its own where this rank is the family.
std::shared_ptr<Arena> Regroup::arena_of_one(const std::string& name, const Numbering* numbering) const {
  const bool may_be_part = at_.header().part_of.load(std::memory_order_acquire) != 0;
  if (may_be_part && at_.family().memory()) try {
      const uint64_t offset = create_arena({at_.rank()}, name, numbering);
      keep_while_used(offset, 1);
      const auto& memory = at_.family().memory();
      return Arena::at(memory->at(offset), Layout(1), memory, offset);
    } catch (const Error& error) {
      log(GSEL_LOG_WARN, "comm", "gsel trace will not find {}: {}", name, error.message());
    }
  const int32_t joined = at_.mine().family_rank;
  const int32_t in_text = numbering ? numbering->of_family[static_cast<size_t>(joined)] : 0;
  return Arena::alone(at_.header().order, {at_.mine().pid, joined, in_text}, name,
                      may_be_part && !at_.family().memory());
}

MemberPlace Regroup::place_in(const std::vector<int32_t>& members, uint64_t offset, const std::string& name,
                              std::shared_ptr<const Numbering> numbering) const {
  MemberPlace place{at_.shared_family(), nullptr, 0, signals_.timeout_ns(), threads_allowed_, {}, std::move(numbering)};
  if (members.size() == 1) {
    place.arena = arena_of_one(name, place.numbering.get());
    return place;
  }
  const int32_t founder = members.front();
  if (offset == 0)
    throw Error(GSEL_ERR_NOMEM, fmt::format("{} found no memory for the new communicator", at_.named(founder)))
        .about_rank(at_.shown(founder));
  const auto& memory = at_.family().memory();
  place.arena = Arena::at(memory->at(offset), Layout(static_cast<int32_t>(members.size())), memory, offset);
  place.rank = static_cast<int32_t>(std::ranges::find(members, at_.rank()) - members.begin());
  return place;
}

}  // namespace gsel::shm
