// comm/shm/wait/signals.cc: how a rank waits for another, and what ends the wait. It polls for a short time, then
// yields the processor, then sleeps on a futex of the awaited rank. In between it checks whether the communicator is
// broken, the awaited rank has left, its process has ended, or time is up. A watcher's thread breaks the communicator
// when a member dies; without one, ranks sleep for shorter times and check all members themselves. The memory orders
// and fences are those that tests/model checks; change both together.
#include "comm/shm/wait/signals.h"

#include <sched.h>

#include <algorithm>

namespace gsel::shm {
namespace {

constexpr int64_t kSpinOwnCoreNs = 50'000;
constexpr int64_t kSpinSharedNs = 200;

bool reached(const std::atomic<uint64_t>& flag, uint64_t value) {
  return flag.load(std::memory_order_acquire) >= value;
}

}  // namespace

Signals::Signals(const Membership& members, const FlightRecorder& recorder, const Breaking& breaking,
                 int64_t timeout_ns)
    : at_(members),
      recorder_(recorder),
      breaking_(breaking),
      chain_(members, recorder, breaking),
      timeout_ns_(timeout_ns),
      crowded_(at_.header().cores < at_.world_size()),
      spin_ns_(crowded_ ? kSpinSharedNs : kSpinOwnCoreNs),
      asymmetric_(at_.header().asymmetric != 0) {}

namespace {

struct EndOfWait {
  explicit EndOfWait(WaitChain& own) : chain(own) {}
  ~EndOfWait() { chain.end(); }
  EndOfWait(const EndOfWait&) = delete;
  EndOfWait& operator=(const EndOfWait&) = delete;
  WaitChain& chain;
};

}  // namespace

void Signals::wait_long(int32_t rank, const std::atomic<uint64_t>& flag, uint64_t value) {
  if (spin(rank, flag, value)) return;
  chain_.await(rank, flag, value);
  if (!driver_->busy()) publish_alone();
  const EndOfWait end(chain_);
  const int64_t started = os::now_ns();
  if (deadline_ns_ == 0) deadline_ns_ = started + call_->timeout_ns;
  int yields = crowded_ ? kCrowdedYields : INT32_MAX;
  while (!reached(flag, value)) {
    if (at_.is_broken() && !reached(flag, value)) breaking_.throw_broken();  // a flag posted before still counts
    if (driver_->advance_other_calls()) continue;
    if (yields-- > 0 && os::now_ns() - started < kYieldNs) {
      sched_yield();
      continue;
    }
    chain_.publish(driver_->blocks_caller());
    check_peer(rank, flag, value, *call_, number_);
    check_deadline(rank, deadline_ns_, *call_, number_);
    driver_->check_other_calls();
    sleep_until_woken(rank, flag, value);
  }
  chain_.stop_awaiting();
}

void Signals::publish_alone() {
  RankBlock& me = at_.mine();
  if (driver_->outer()) {
    uint64_t words[kOuterCallBytes / sizeof(uint64_t)] = {};
    driver_->outer()->call_text().copy(reinterpret_cast<char*>(words), sizeof words - 1);
    for (size_t i = 0; i < std::size(words); ++i) me.outer_call[i].store(words[i], std::memory_order_relaxed);
  }
  me.alone_in.store(at_.posted_headers(), std::memory_order_release);
}

// A rank on the same processor cannot run while this rank spins, so spinning ends early.
bool Signals::spin(int32_t rank, const std::atomic<uint64_t>& flag, uint64_t value) {
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
    if (at_.mine().processor.load(std::memory_order_relaxed) != here)
      at_.mine().processor.store(here, std::memory_order_relaxed);
    if (rank != at_.rank() && at_.block(rank).processor.load(std::memory_order_relaxed) == here) return false;
    driver_->advance_other_calls();
  } while (os::now_ns() < end);
  return false;
}

// An event that ends the wait before the word is read is seen in `ended`; a later one changes the word.
void Signals::sleep_until_woken(int32_t rank, const std::atomic<uint64_t>& flag, uint64_t value) {
  RankBlock& other = at_.block(rank);
  other.sleepers.fetch_add(1, std::memory_order_seq_cst);
  const uint32_t word = other.wake_word.load(std::memory_order_seq_cst);
  if (rank != at_.rank()) wake_listener_of(rank);  // it may have a postponed collective
  if (asymmetric_) os::pass_barriers_everywhere();
  const int64_t most = driver_->is_alone() ? longest_sleep() : kSleepBesideNs, left = deadline_ns_ - os::now_ns();
  // Read after the word: a rank that leaves or breaks the communicator before that does not change the word again.
  const bool ended = flag.load(std::memory_order_seq_cst) >= value || other.left.load(std::memory_order_seq_cst) != 0 ||
                     at_.header().broken.load(std::memory_order_seq_cst) != 0;
  if (!ended && left > 0) os::futex_wait(other.wake_word, word, std::min(most, left));
  other.sleepers.fetch_sub(1, std::memory_order_seq_cst);
}

// A flag posted before the rank left or died still counts, so the flag is read after that check.
void Signals::check_peer(int32_t rank, const std::atomic<uint64_t>& flag, uint64_t value, const Call& call,
                         uint64_t number) {
  const Member& peer = at_.member(rank);
  const bool left = at_.block(rank).left.load(std::memory_order_acquire) != 0;
  const bool died = !left && peer.life && os::life_ended(peer.life.get());
  // A rank that left before its process ended did not die.
  const bool left_before = died && at_.block(rank).left.load(std::memory_order_acquire) != 0;
  if ((!left && !died) || reached(flag, value)) return;
  breaking_.break_with(
      GSEL_ERR_PEER, rank,
      fmt::format("{} {} while {} waited for it in {} (call {})", at_.who(rank), left || left_before ? "left" : kEnded,
                  at_.named(at_.rank()), recorder_.text_of(call), number));
}

void Signals::check_deadline(int32_t rank, int64_t deadline_ns, const Call& call, uint64_t number) {
  if (os::now_ns() >= deadline_ns) chain_.fail_late(rank, deadline_ns - call.timeout_ns, call, number);
}

void Signals::wake_driver() const noexcept {
  if (at_.mine().listening.load(std::memory_order_seq_cst) != 0) Breaking::wake_listener(at_.mine());
  const int32_t awaited = at_.mine().awaited_rank.load(std::memory_order_seq_cst) - 1;
  if (awaited >= 0) Breaking::wake(at_.block(awaited));
}

}  // namespace gsel::shm
