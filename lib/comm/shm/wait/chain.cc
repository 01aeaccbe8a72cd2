// comm/shm/wait/chain.cc: see chain.h. Other ranks may change the data meanwhile, so every offset and rank is checked
// before it is used.
#include "comm/shm/wait/chain.h"

#include "base/text.h"
#include "device/host/stream.h"

namespace gsel::shm {
namespace {

constexpr uint32_t kTold = 2;  // of ArenaHeader::broken: readable

int32_t rank_in(const Arena& arena, int32_t family_rank) {
  int32_t q = 0;
  while (q < arena.layout().world_size && arena.rank(q).family_rank != family_rank) ++q;
  return q < arena.layout().world_size ? q : -1;
}

// The rank that a rank still waits for, or -1.
int32_t awaited_in(const Arena& arena, int32_t rank) {
  const RankBlock& block = arena.rank(rank);
  const int32_t next = block.awaited_rank.load(std::memory_order_acquire) - 1;
  const auto* flag = arena.flag_at(block.awaited_flag.load(std::memory_order_relaxed));
  if (next < 0 || next >= arena.layout().world_size || !flag) return -1;
  return flag->load(std::memory_order_acquire) >= block.awaited_value.load(std::memory_order_relaxed) ? -1 : next;
}

// nullptr if it no longer exists.
std::shared_ptr<Arena> arena_at(const Family& family, uint64_t place) {
  const auto& memory = family.memory();
  try {
    char* base = memory->at(place);
    const int32_t ranks = reinterpret_cast<const ArenaHeader*>(base)->world_size;
    if (ranks < 2 || ranks > family.size()) return nullptr;
    return Arena::at(base, Layout(ranks), memory, place);
  } catch (const Error&) {
    return nullptr;
  }
}

}  // namespace

void WaitChain::await(int32_t rank, const std::atomic<uint64_t>& flag, uint64_t value) noexcept {
  RankBlock& me = at_.mine();
  me.awaited_flag.store(at_.arena().offset_of(flag), std::memory_order_relaxed);
  me.awaited_value.store(value, std::memory_order_relaxed);
  me.awaited_rank.store(rank + 1, std::memory_order_release);
}

void WaitChain::publish(bool blocks_caller) noexcept {
  if (at_.arena().place() == 0) return;
  const auto* stream_waiters = host::waiters_of_this_stream();
  const bool blocks = blocks_caller && (!stream_waiters || stream_waiters->load() > 0);
  if (slot_ < 0) since_ns_ = os::now_ns();
  tell_elsewhere(blocks);
  const uint64_t word = at_.arena().place() | (blocks ? kBlocksCaller : 0);
  auto& waits = joined_block(at_.family(), at_.family().rank()).waits;
  for (size_t i = 0; i < kWaits && slot_ < 0; ++i) {
    uint64_t none = 0;
    if (waits[i].compare_exchange_strong(none, word, std::memory_order_acq_rel)) slot_ = static_cast<int32_t>(i);
  }
  if (slot_ >= 0 && waits[slot_].load(std::memory_order_relaxed) != word)
    waits[slot_].store(word, std::memory_order_release);
}

// A failed wait stays for other ranks to find until the communicator is left.
void WaitChain::end() noexcept {
  const bool failed = at_.header().broken.load(std::memory_order_relaxed) != 0;
  if (failed && elsewhere_.waits()) tell_failure();
  if (slot_ >= 0 && !failed) retract();
}

void WaitChain::retract() noexcept {
  elsewhere_.end(false);
  if (slot_ < 0) return;
  joined_block(at_.family(), at_.family().rank()).waits[slot_].store(0, std::memory_order_release);
  slot_ = -1;
}

// The next link of the chain after `waiter`, in this arena. Failures before since_ns do not count.
std::optional<ChainEnd> WaitChain::waits_in_arena(const std::shared_ptr<Arena>& arena, int32_t waiter,
                                                  int64_t since_ns) const {
  const ArenaHeader& header = arena->header();
  if (header.broken.load(std::memory_order_acquire) == 0) {
    const int32_t next = awaited_in(*arena, waiter);
    if (next < 0) return {};
    return ChainEnd{arena->rank(next).family_rank, -1, arena, waiter, next, false};
  }
  if (header.broken.load(std::memory_order_acquire) != kTold || header.broken_ns < since_ns) return {};
  const int32_t blamed = header.broken_family, own = arena->rank(waiter).family_rank;
  if (blamed < 0) {
    auto held = read_record(header.broken_elsewhere);
    return held ? end_elsewhere(std::move(*held), own, true) : std::nullopt;
  }
  if (blamed == own) return {};
  return ChainEnd{blamed, -1, arena, waiter, rank_in(*arena, blamed), true};
}

// The next link of the chain: first in the same arena, then in other communicators where the rank waits.
std::optional<ChainEnd> WaitChain::next(const ChainEnd& at, int64_t since_ns) const {
  if (at.rank >= 0)
    if (auto next = waits_in_arena(at.arena, at.rank, since_ns)) return next;
  for (const auto& word : joined_block(at_.family(), at.family_rank).waits) {
    const uint64_t found = word.load(std::memory_order_acquire), place = found & ~kBlocksCaller;
    if ((found & kBlocksCaller) == 0 || (at.arena && place == at.arena->place())) continue;
    const auto arena = arena_at(at_.family(), place);
    const int32_t waiter = arena ? rank_in(*arena, at.family_rank) : -1;
    if (waiter < 0) continue;
    if (auto next = waits_in_arena(arena, waiter, since_ns)) return next;
  }
  return waits_in_family(at.family_rank, since_ns);
}

std::optional<ChainEnd> WaitChain::waits_in_family(int32_t family_rank, int64_t since_ns) const {
  auto held = elsewhere_.told_by(family_rank);
  if (!held || (held->ended_ns != 0 && held->ended_ns < since_ns)) return {};
  const bool gave_up = held->ended_ns != 0;
  return end_elsewhere(std::move(*held), family_rank, gave_up);
}

std::optional<ChainEnd> WaitChain::end_elsewhere(HeldElsewhere held, int32_t waiter, bool gave_up) const {
  const int32_t found = elsewhere_.find(held.person, held.process);
  if (found == waiter) return {};
  return ChainEnd{found, -1, nullptr, -1, -1, gave_up, std::move(held)};
}

// A cycle back to this rank ends before it.
ChainEnd WaitChain::end_of_chain(int32_t rank, int64_t since_ns) const {
  ChainEnd end{at_.block(rank).family_rank, rank, at_.shared_arena(), at_.rank(), rank, false};
  for (int32_t steps = 0; steps < at_.family().size() && !end.gave_up && end.family_rank >= 0; ++steps) {
    auto next = this->next(end, since_ns);
    if (!next || next->family_rank == at_.family().rank()) break;
    const int32_t here = rank_in(at_.arena(), next->family_rank);
    next->member = here >= 0 ? here : end.member;
    end = std::move(*next);
  }
  return end;
}

// Describes the end of this rank's chain for ranks that are not in this communicator.
HeldElsewhere WaitChain::in_words(const ChainEnd& end, const char* state) const {
  if (end.family_rank < 0) return *end.elsewhere;
  HeldElsewhere held;
  held.person = elsewhere_.person(end.family_rank);
  held.process = at_.family().member(end.family_rank).process;
  held.who = fmt::format("{} of communicator {} {}", at_.name_in_family(end.family_rank, true),
                         rank_in(at_.arena(), end.family_rank) >= 0 ? at_.name() : at_.family().name.c_str(), state);
  if (end.elsewhere) {
    held.where = end.elsewhere->where;
    return held;
  }
  const uint64_t at = end.arena->rank(end.waiter).latest_number.load(std::memory_order_relaxed) / 2;
  held.where = fmt::format("in communicator {} {} needs it for {} (call {})", end.arena->header().name,
                           at_.name_in_family(end.arena->rank(end.waiter).family_rank),
                           recorder_.text_of(*end.arena, end.waiter, at), at);
  return held;
}

void WaitChain::tell_elsewhere(bool blocks_caller) noexcept {
  if (!Elsewhere::anywhere()) return;
  const int32_t awaited = at_.mine().awaited_rank.load(std::memory_order_relaxed) - 1;
  if (!blocks_caller || awaited < 0) return elsewhere_.end(false);
  try {
    elsewhere_.tell(in_words(end_of_chain(awaited, since_ns_), "is late"));
  } catch (...) {
    elsewhere_.end(false);  // no memory for the text
  }
}

// Publishes the failure of the wait to other families, if another rank caused it.
void WaitChain::tell_failure() noexcept {
  try {
    const auto end = waits_in_arena(at_.shared_arena(), at_.rank(), 0);
    if (!end) return elsewhere_.end(false);
    const gsel_status code = at_.header().broken_code;
    elsewhere_.tell(in_words(*end, code == GSEL_ERR_PEER      ? "is gone"
                                   : code == GSEL_ERR_TIMEOUT ? "is late"
                                                              : "ended it"));
    elsewhere_.end(true);
  } catch (...) {
    elsewhere_.end(false);
  }
}

void WaitChain::fail_late(int32_t rank, int64_t since_ns, const Call& call, uint64_t number) {
  const ChainEnd end = end_of_chain(rank, since_ns);
  if (Elsewhere::anywhere()) {
    elsewhere_.tell(in_words(end, "is late"));
    elsewhere_.end(true);
  }
  const std::string waited =
      fmt::format("{} waited {}", at_.named(at_.rank()), seconds_text(static_cast<double>(call.timeout_ns) / 1e9));
  const int32_t here = end.family_rank < 0 ? -1 : rank_in(at_.arena(), end.family_rank);
  if (end.arena == at_.shared_arena())
    breaking_.break_with(GSEL_ERR_TIMEOUT, here,
                         fmt::format("timed out: {} is late: {} in {} (call {}), rank {} {}", at_.who(here), waited,
                                     recorder_.text_of(call), number, at_.shown(here), recorder_.activity_of(here)));
  const int32_t in_text = end.family_rank < 0 ? -1 : at_.shown_of_family(end.family_rank);
  const int32_t about = here >= 0 ? at_.shown(here) : in_text;
  const std::string who =
      end.family_rank < 0 ? end.elsewhere->who : at_.name_in_family(end.family_rank, true) + " is late";
  breaking_.write(GSEL_ERR_TIMEOUT, about >= 0 ? about : at_.shown(end.member), end.family_rank,
                  fmt::format("timed out: {}: {} for {} in {} (call {}), and {}", who, waited, at_.named(rank),
                              recorder_.text_of(call), number, wait_of(end)),
                  end.family_rank < 0 ? &*end.elsewhere : nullptr);
  breaking_.throw_broken();
}

// Text: which rank waits for the last rank, and where.
std::string WaitChain::wait_of(const ChainEnd& end) const {
  if (end.elsewhere) return end.elsewhere->where;
  const uint64_t at = end.arena->rank(end.waiter).latest_number.load(std::memory_order_relaxed) / 2;
  return fmt::format("{} {} for it in {} of communicator {} (call {})",
                     at_.name_in_family(end.arena->rank(end.waiter).family_rank),
                     end.gave_up ? "waited in vain" : "waits", recorder_.text_of(*end.arena, end.waiter, at),
                     end.arena->header().name, at);
}

}  // namespace gsel::shm
