// comm/shm/wait/wait.cc: how a rank waits for another, and what ends the wait. It polls for a short time, then yields
// the processor, then sleeps on a futex of the awaited rank. In between it checks whether the communicator is broken,
// the awaited rank has left, its process has ended, or time is up. A watcher's thread breaks the communicator when a
// member dies; without one, ranks sleep for shorter times and check all members themselves. Every failure is written
// into the arena, the first one counts, and all ranks report the same. The memory orders and fences are those that
// tests/model checks; change both together.
#include <sched.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "comm/describe.h"
#include "comm/shm/link.h"
#include "comm/shm/name.h"

namespace gsel::shm {
namespace {

constexpr int64_t kWritingNs = 100'000'000;
constexpr uint32_t kWriting = 1, kReadable = 2;

bool reached(const std::atomic<uint64_t>& flag, uint64_t value) {
  return flag.load(std::memory_order_acquire) >= value;
}

}  // namespace

void Link::wait_long(int32_t rank, const std::atomic<uint64_t>& flag, uint64_t value) {
  if (spin(rank, flag, value)) return;
  RankBlock& me = mine();
  me.awaited_flag.store(arena_->offset_of(flag), std::memory_order_relaxed);
  me.awaited_value.store(value, std::memory_order_relaxed);
  me.awaited_rank.store(rank + 1, std::memory_order_release);
  publish_alone();
  const EndOfWait end(*this);
  const int64_t started = os::now_ns();
  if (deadline_ns_ == 0) deadline_ns_ = started + current_.timeout_ns;
  int yields = crowded_ ? kCrowdedYields : INT32_MAX;
  while (!reached(flag, value)) {
    throw_if_broken();
    if (go_on_beside()) continue;
    if (yields-- > 0 && os::now_ns() - started < kYieldNs) {
      sched_yield();
      continue;
    }
    publish_wait();
    check_peer(rank, flag, value, current_, number_);
    check_deadline(rank, deadline_ns_, current_, number_);
    attend();
    sleep_until_woken(rank, flag, value);
  }
  me.awaited_rank.store(0, std::memory_order_release);
}

// A rank that sits on our own processor cannot go on while we spin, whatever the number of processors.
bool Link::spin(int32_t rank, const std::atomic<uint64_t>& flag, uint64_t value) {
  constexpr int kLooksAtFirst = 256, kLooksPerClock = 16;
  for (int i = 0; i < kLooksAtFirst; ++i)
    if (reached(flag, value)) return true;
  const int64_t end = os::now_ns() + spin_ns_;
  do {
    for (int i = 0; i < kLooksPerClock; ++i) {
      if (reached(flag, value)) return true;
      pause_processor();
    }
    const int32_t here = sched_getcpu() + 1;
    if (mine().processor.load(std::memory_order_relaxed) != here)
      mine().processor.store(here, std::memory_order_relaxed);
    if (rank != rank_ && arena_->rank(rank).processor.load(std::memory_order_relaxed) == here) return false;
    go_on_beside();
  } while (os::now_ns() < end);
  return false;
}

// What ended the wait before the word was read is seen here; what ends it later changes the word.
void Link::sleep_until_woken(int32_t rank, const std::atomic<uint64_t>& flag, uint64_t value) {
  RankBlock& other = arena_->rank(rank);
  other.sleepers.fetch_add(1, std::memory_order_seq_cst);
  const uint32_t word = other.wake_word.load(std::memory_order_seq_cst);
  if (asymmetric_) os::pass_barriers_everywhere();
  const int64_t most = transfers_.empty() ? longest_sleep() : kSleepBesideNs, left = deadline_ns_ - os::now_ns();
  // Behind the word, or who breaks the communicator or leaves between our last look and here would wake nobody.
  const bool ended = flag.load(std::memory_order_seq_cst) >= value || other.left.load(std::memory_order_seq_cst) != 0 ||
                     arena_->header().broken.load(std::memory_order_seq_cst) != 0;
  if (!ended && left > 0) os::futex_wait(other.wake_word, word, std::min(most, left));
  other.sleepers.fetch_sub(1, std::memory_order_seq_cst);
}

void Link::wake(RankBlock& block) noexcept {
  block.wake_word.fetch_add(1, std::memory_order_seq_cst);
  os::futex_wake_all(block.wake_word);
}

// What a rank posted before it left or died counts, hence the second look at the flag.
void Link::check_peer(int32_t rank, const std::atomic<uint64_t>& flag, uint64_t value, const Call& call,
                      uint64_t number) {
  const Member& peer = member(rank);
  const bool left = arena_->rank(rank).left.load(std::memory_order_acquire) != 0;
  const bool died = !left && peer.life && os::life_ended(peer.life.get());
  // A rank that left and then ended has left.
  const bool left_before = died && arena_->rank(rank).left.load(std::memory_order_acquire) != 0;
  if ((!left && !died) || reached(flag, value)) return;
  break_link(GSEL_ERR_PEER, rank,
             fmt::format("{} {} while {} waited for it in {} (call {})", who(rank),
                         left || left_before ? "left" : kEnded, named(rank_), text_of(call), number));
}

void Link::look_at_all() const {
  for (int32_t q = 0; q < world_size_; ++q) {
    const int32_t family_rank = arena_->rank(q).family_rank;
    if (family_->ended(family_rank)) hear_of_death(family_rank);
  }
}

// Who has left and then ended has left: whoever waits for it says so.
void Link::hear_of_death(int32_t family_rank) const noexcept {
  for (int32_t q = 0; q < world_size_; ++q) {
    const RankBlock& block = arena_->rank(q);
    if (block.family_rank != family_rank || block.left.load(std::memory_order_acquire) != 0) continue;
    try {
      mark_broken(GSEL_ERR_PEER, q, fmt::format("{} {} while {} {}", who(q), kEnded, named(rank_), activity_of(rank_)));
    } catch (...) {
      mark_broken(GSEL_ERR_PEER, q, {});  // no memory for the text
    }
  }
}

void Link::check_deadline(int32_t rank, int64_t deadline_ns, const Call& call, uint64_t number) {
  if (os::now_ns() >= deadline_ns) fail_late(rank, deadline_ns - call.timeout_ns, call, number);
}

std::string Link::activity_of(int32_t rank) const {
  const RankBlock& block = arena_->rank(rank);
  const uint64_t number = block.latest_number.load(std::memory_order_relaxed);
  if (number == 0) return "has made no call yet";
  return fmt::format("{} {} (call {})", number % 2 ? "last finished" : "is in", text_of(rank, number / 2), number / 2);
}

void Link::abort(const char* reason, int32_t about) noexcept {
  if (os::fork_generation() != fork_generation_) return;
  std::lock_guard lock(arena_mutex_);
  try {
    const char* given = reason && *reason ? reason : "no reason given";
    const std::string text = fmt::format("{} aborted the communicator: {}", named(rank_), given);
    if (about < 0)
      mark_broken(GSEL_ERR_ABORTED, rank_, text);
    else
      write_broken(GSEL_ERR_ABORTED, about, family_of_shown(about), text);
  } catch (...) {
    mark_broken(GSEL_ERR_ABORTED, rank_, {});  // no memory for the text
  }
}

void Link::mark_broken(gsel_status code, int32_t about, const std::string& text) const noexcept {
  const bool somebody = about >= 0 && about < world_size_;
  write_broken(code, somebody ? shown(about) : about, somebody ? arena_->rank(about).family_rank : -1, text);
}

void Link::write_broken(gsel_status code, int32_t shown, int32_t family_rank, const std::string& text) const noexcept {
  if (os::fork_generation() != fork_generation_) return;
  ArenaHeader& header = arena_->header();
  uint32_t none = 0;
  if (!header.broken.compare_exchange_strong(none, kWriting, std::memory_order_seq_cst)) return;
  header.broken_code = code;
  header.broken_rank = shown;
  header.broken_family = family_rank;
  header.broken_ns = os::now_ns();
  const size_t length = std::min(text.size(), kTextBytes - 1);
  std::memcpy(header.broken_text, text.data(), length);
  header.broken_text[length] = '\0';
  header.broken.store(kReadable, std::memory_order_seq_cst);
  wake_all();
}

void Link::wake_all() const noexcept {
  for (int32_t q = 0; q < world_size_; ++q) {
    wake(arena_->rank(q));
    wake_listener(arena_->rank(q));
  }
}

void Link::break_link(gsel_status code, int32_t about, const std::string& text) const {
  mark_broken(code, about, text);
  throw_broken();
}

std::string Link::which() const {
  if (!several_communicators()) return {};
  if (numbering_) return fmt::format(" (communicator {}, by the ranks of {})", name_, numbering_->name);
  return fmt::format(" (communicator {})", name_);
}

std::string Link::named(int32_t rank) const {
  const int32_t joined = arena_->rank(rank).family_rank, in_text = shown(rank);
  if (joined == in_text) return fmt::format("rank {}", in_text);
  return fmt::format("rank {} (rank {} of {})", in_text, joined, family_->name);
}

std::string Link::who(int32_t rank) const {
  const int32_t joined = arena_->rank(rank).family_rank, in_text = shown(rank);
  if (joined == in_text) return fmt::format("rank {} (pid {})", in_text, member(rank).pid);
  return fmt::format("rank {} (pid {}, rank {} of {})", in_text, member(rank).pid, joined, family_->name);
}

std::string Link::name_in_family(int32_t family_rank, bool with_pid) const {
  for (int32_t q = 0; q < world_size_; ++q)
    if (arena_->rank(q).family_rank == family_rank) return with_pid ? who(q) : named(q);
  const int32_t in_text = shown_of_family(family_rank);
  std::string name =
      in_text >= 0 ? fmt::format("rank {}", in_text) : fmt::format("rank {} of {}", family_rank, family_->name);
  if (with_pid) name += fmt::format(" (pid {})", family_->member(family_rank).pid);
  return name;
}

int32_t Link::shown_of_family(int32_t family_rank) const {
  return numbering_ ? numbering_->of_family[static_cast<size_t>(family_rank)] : -1;
}

int32_t Link::family_of_shown(int32_t in_text) const {
  for (int32_t f = 0; numbering_ && f < family_->size(); ++f)
    if (shown_of_family(f) == in_text) return f;
  return !numbering_ && in_text < world_size_ ? arena_->rank(in_text).family_rank : -1;
}

void Link::throw_broken() const {
  const ArenaHeader& header = arena_->header();
  const int64_t patience = os::now_ns() + kWritingNs;
  while (header.broken.load(std::memory_order_acquire) != kReadable) {
    if (os::now_ns() > patience) fail(GSEL_ERR_PEER, "a rank died while it reported why the communicator is broken");
    sched_yield();
  }
  throw Error(header.broken_code, header.broken_text + which()).about_rank(header.broken_rank);
}

}  // namespace gsel::shm
