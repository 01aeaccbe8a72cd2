// comm/shm/announce.cc: what the control link does for calls that a transport of devices makes on a stream. A rank
// announces each call before it is enqueued: the call is recorded, and the fingerprint of a collective is posted and
// compared with those that other ranks have posted, so the last rank to come finds any difference. Nobody waits for
// that, except a rank that is kDeviceCalls ahead of another. What goes wrong later is found by look_after_announced,
// which a thread of the caller repeats: a rank that has left, or has not made the call in time.
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "comm/describe.h"
#include "comm/shm/link.h"

namespace gsel::shm {
namespace {

constexpr useconds_t kLookUs = 50;

}  // namespace

void Link::announce(const gsel_collective& given) {
  require_own_process(collective_name(given.kind));
  try {
    throw_if_broken();
    complete(given, world_size_, timeout_ns_.load(), announcing_);
    announcing_.asked = Asked::enqueued;
    const uint64_t number = enter(announcing_);
    if (is_point_to_point(given.kind)) {
      count_call(given.kind, given.kind == GSEL_COLLECTIVE_RECV ? 0 : announcing_.count * announcing_.element);
    } else {
      announce_collective(announcing_, number);
      count_call(given.kind, world_size_ > 1 ? bytes_sent(announcing_, Plan(announcing_, rank_, world_size_)) : 0);
    }
    leave(number);
  } catch (const Error& error) {
    note_failure(error);
    throw;
  }
}

void Link::announce_collective(const Call& call, uint64_t number) {
  RankBlock& me = mine();
  const uint64_t n = me.announced.load(std::memory_order_relaxed) + 1;
  wait_until_near(n, call, number);
  const uint64_t print = fingerprint(call);
  me.device_call[n % kDeviceCalls].fingerprint.store(print, std::memory_order_relaxed);
  me.device_call[n % kDeviceCalls].number.store(number, std::memory_order_relaxed);
  announced_until_[n % kDeviceCalls].store(os::now_ns() + call.timeout_ns, std::memory_order_relaxed);
  me.announced.store(n, std::memory_order_seq_cst);  // of two ranks one sees the other's
  compare_announced(n, print);
}

// A line is written anew by a rank that all others have followed so far that they have read it.
void Link::wait_until_near(uint64_t n, const Call& call, uint64_t number) {
  int64_t deadline_ns = 0;
  for (int32_t q = 0; q < world_size_; ++q)
    while (q != rank_ && arena_->rank(q).announced.load(std::memory_order_acquire) + kDeviceCalls - 1 < n) {
      throw_if_broken();
      look_after_announced();
      if (deadline_ns == 0) deadline_ns = os::now_ns() + call.timeout_ns;
      check_deadline(q, deadline_ns, call, number);
      usleep(kLookUs);
    }
}

void Link::compare_announced(uint64_t n, uint64_t print) const {
  for (int32_t q = 0; q < world_size_; ++q) {
    const RankBlock& other = arena_->rank(q);
    if (q == rank_ || other.announced.load(std::memory_order_seq_cst) < n) continue;
    const DeviceCall& posted = other.device_call[n % kDeviceCalls];
    if (posted.fingerprint.load(std::memory_order_relaxed) == print) continue;
    const auto number = [&](int32_t r) {
      return arena_->rank(r).device_call[n % kDeviceCalls].number.load(std::memory_order_relaxed);
    };
    const auto [low, high] = std::minmax(q, rank_);
    break_link(GSEL_ERR_MISMATCH, q,
               fmt::format("{} called {}, {} called {}{}; make the calls alike on every rank", named(low),
                           text_of(low, number(low)), named(high), text_of(high, number(high)),
                           difference(low, number(low), high, number(high))));
  }
}

// " while rank 0 waited for it in gsel_allreduce(...) (call 3)", for collective n of this rank.
std::string Link::late_text(int32_t rank, uint64_t n) const {
  const uint64_t number = mine().device_call[n % kDeviceCalls].number.load(std::memory_order_relaxed);
  return fmt::format("{} waited for it in {} (call {}), rank {} {}", named(rank_), text_of(rank_, number), number,
                     shown(rank), activity_of(rank));
}

void Link::look_after_announced() const {
  if (!family_->watcher()) look_at_all();
  const uint64_t made = mine().announced.load(std::memory_order_acquire);
  for (int32_t q = 0; q < world_size_; ++q) {
    const RankBlock& other = arena_->rank(q);
    const bool left = other.left.load(std::memory_order_acquire) != 0;
    const uint64_t next = other.announced.load(std::memory_order_acquire) + 1;
    if (next > made) continue;
    if (left)
      mark_broken(GSEL_ERR_PEER, q, fmt::format("{} left while {}", who(q), late_text(q, next)));
    else if (os::now_ns() > announced_until_[next % kDeviceCalls].load(std::memory_order_relaxed))
      mark_broken(GSEL_ERR_TIMEOUT, q, fmt::format("{} is late: {}", who(q), late_text(q, next)));
  }
}

void Link::break_with(const Error& error) const noexcept {
  mark_broken(error.code(), rank_, error.message());
}

bool Link::await_break(int64_t nanoseconds) const {
  const std::atomic<uint32_t>& word = mine().wake_word;
  const uint32_t before = word.load(std::memory_order_seq_cst);
  if (arena_->header().broken.load(std::memory_order_seq_cst) == 0) os::futex_wait(word, before, nanoseconds);
  return is_broken();
}

}  // namespace gsel::shm
