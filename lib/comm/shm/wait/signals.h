// comm/shm/wait/signals.h: how ranks signal progress to each other: a rank posts a flag in the arena, and another waits
// for it. A wait that fails throws an error that names the rank that is late, has left or has died. Does not know what
// the flags mean.
#pragma once

#include <atomic>
#include <cstdint>

#include "comm/shm/wait/breaking.h"
#include "comm/shm/wait/chain.h"
#include "comm/shm/wait/driver.h"

namespace gsel::shm {

// Time a waiting rank yields its processor before it sleeps, and the longest sleeps.
constexpr int64_t kYieldNs = 60'000;
constexpr int kCrowdedYields = 32;  // limit with more ranks than cores: sched_yield does not give way to a rank of
                                    // another scheduling group, but a sleep does
constexpr int64_t kSleepNs = 1'000'000;
constexpr int64_t kWatchedSleepNs = 20'000'000;  // with a watcher, which breaks the communicator when a member dies
constexpr int64_t kSleepBesideNs = 100'000;      // in a collective with messages under way, which do not wake it

inline void pause_processor() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

class Signals {
 public:
  Signals(const Membership& members, const FlightRecorder& recorder, const Breaking& breaking, int64_t timeout_ns);
  // Before any wait.
  void attach(Driver& driver) { driver_ = &driver; }
  Driver& driver() const { return *driver_; }

  int64_t timeout_ns() const { return timeout_ns_.load(std::memory_order_relaxed); }
  void set_timeout(int64_t nanoseconds) { timeout_ns_.store(nanoseconds); }
  bool asymmetric() const { return asymmetric_; }
  bool crowded() const { return crowded_; }     // more ranks than cores
  int64_t spin_ns() const { return spin_ns_; }  // how long a wait polls
  int64_t longest_sleep() const { return at_.family().watcher() ? kWatchedSleepNs : kSleepNs; }
  WaitChain& chain() { return chain_; }

  // Sets the collective of the next waits, for texts and the deadline.
  void begin(const Call& call, uint64_t number) {
    call_ = &call;
    number_ = number;
    deadline_ns_ = 0;
  }

  void wait(int32_t rank, const std::atomic<uint64_t>& flag, uint64_t value) {
    if (flag.load(std::memory_order_acquire) < value) wait_long(rank, flag, value);
  }
  void wait_all(std::atomic<uint64_t> RankBlock::*flag, uint64_t value) {
    for (int32_t q = 0; q < at_.world_size(); ++q) wait(q, at_.block(q).*flag, value);
  }
  // Publishes progress of this rank and wakes the ranks that sleep for it. At least one side sees the other: either
  // both pass a barrier, or a rank that goes to sleep makes all ranks pass one. Memory orders as in tests/model; change
  // both.
  void post(std::atomic<uint64_t>& flag, uint64_t value) {
    RankBlock& me = at_.mine();
    if (asymmetric_) {
      flag.store(value, std::memory_order_release);
      std::atomic_signal_fence(std::memory_order_seq_cst);
      if (me.sleepers.load(std::memory_order_relaxed) != 0) Breaking::wake(me);
    } else {
      flag.store(value, std::memory_order_seq_cst);
      if (me.sleepers.load(std::memory_order_seq_cst) != 0) Breaking::wake(me);
    }
  }
  // Publishes progress on a channel to the rank at its other end; see post.
  void notify(int32_t rank, std::atomic<uint64_t>& flag, uint64_t value) {
    if (asymmetric_)
      flag.store(value, std::memory_order_release);
    else
      flag.store(value, std::memory_order_seq_cst);
    wake_listener_of(rank);
  }
  // Wakes a rank that listens, after a change that it may wait for.
  void wake_listener_of(int32_t rank) {
    RankBlock& other = at_.block(rank);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (other.listening.load(asymmetric_ ? std::memory_order_relaxed : std::memory_order_seq_cst) != 0)
      Breaking::wake_listener(other);
  }
  // Wakes the driver of this rank, whether it sleeps for messages or in a collective.
  void wake_driver() const noexcept;

  // Break the communicator if the rank waited for has left or died, or the deadline has passed.
  void check_peer(int32_t rank, const std::atomic<uint64_t>& flag, uint64_t value, const Call& call, uint64_t number);
  void check_deadline(int32_t rank, int64_t deadline_ns, const Call& call, uint64_t number);

 private:
  void wait_long(int32_t rank, const std::atomic<uint64_t>& flag, uint64_t value);
  void publish_alone();  // see crossed.cc
  bool spin(int32_t rank, const std::atomic<uint64_t>& flag, uint64_t value);
  void sleep_until_woken(int32_t rank, const std::atomic<uint64_t>& flag, uint64_t value);

  const Membership& at_;
  const FlightRecorder& recorder_;
  const Breaking& breaking_;
  WaitChain chain_;
  Driver* driver_ = nullptr;
  std::atomic<int64_t> timeout_ns_;
  const bool crowded_;
  const int64_t spin_ns_;
  const bool asymmetric_;
  const Call* call_ = nullptr;
  uint64_t number_ = 0;
  int64_t deadline_ns_ = 0;  // of the collective; 0 until it waits long
};

}  // namespace gsel::shm
