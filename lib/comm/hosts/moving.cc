// comm/hosts/moving.cc: who moves messages on. A caller that waits for a message moves on all others as well. While
// none waits, a thread does, which starts with the first call that its caller does not wait for. It looks again and
// again while anything is under way, more and more seldom while nothing comes of it; else it sleeps. See messages.h.
#include <algorithm>
#include <chrono>
#include <utility>

#include "base/threads.h"
#include "comm/hosts/messages.h"
#include "comm/shm/engine/request_thread.h"

namespace gsel::hosts {
namespace {

constexpr int64_t kAllNs = 200'000;  // between two looks at all, by who waits for one
constexpr int64_t kBesideNs = 10'000'000;
constexpr int64_t kShortestNs = 50'000, kLongestNs = 2'000'000;  // between two looks of the thread
constexpr int64_t kAwakeNs = 20'000'000;                         // before it sleeps until it is woken

}  // namespace

// Whether it is done. looks: without a wait for another thread.
bool Messages::go_on(Started& started, bool looks) {
  std::unique_lock lock(mutex_, std::defer_lock);
  if (!looks)
    lock.lock();
  else if (!lock.try_lock())
    return false;
  if (started.done_) return true;
  if (os::now_ns() - last_all_ns_ >= kAllNs) {
    go_on_with_all();
  } else {
    take_frames();
    match();
    look(started);
  }
  if (!started.done_ && started.is_blocking_) look_whether_crossed(started);
  return started.done_;
}

// Under the lock.
void Messages::go_on_with_all() {
  take_frames();
  match();
  for (Started* started : started_) look(*started);
  for (size_t q = 0; q < peers_.size(); ++q)
    if (peers_[q]) tend(static_cast<int32_t>(q), *peers_[q]);
  last_all_ns_ = os::now_ns();
}

// What it needs no receive for: what is posted is the thread's and its callers' to move.
void Messages::attend() noexcept {
  const int64_t now = os::now_ns();
  if (now - last_attended_ns_.load(std::memory_order_relaxed) < kBesideNs) return;
  last_attended_ns_.store(now, std::memory_order_relaxed);
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock() || is_closed_) return;
  try {
    take_frames();
    for (size_t q = 0; q < peers_.size(); ++q)
      if (peers_[q]) answer(static_cast<int32_t>(q), *peers_[q]);
  } catch (...) {  // no memory: the next time
  }
}

bool Messages::has_open() const {
  return std::ranges::any_of(started_, [](const Started* one) { return !one->done_; }) ||
         std::ranges::any_of(peers_, [](const auto& peer) {
           return peer && !peer->gone && !(peer->behind.empty() && peer->dropped.empty());
         });
}

void Messages::make_thread() {
  if (!thread_.joinable() && !is_ending_) thread_ = shm::request_thread([this] { run_thread(); });
}

// Where there can be none, whoever makes the next call moves on.
void Messages::wake_thread() noexcept {
  try {
    make_thread();
  } catch (...) {
  }
  if (is_resting_) changed_.notify_one();
}

void Messages::run_thread() {
  std::unique_lock lock(mutex_);
  int64_t moved_ns = os::now_ns(), open_ns = moved_ns;
  while (!is_ending_) {
    const int64_t now = os::now_ns();
    if (has_open()) {
      open_ns = now;
    } else if (now - open_ns > kAwakeNs) {
      const RestingThread resting;
      is_resting_ = true;
      changed_.wait(lock);
      is_resting_ = false;
      moved_ns = open_ns = os::now_ns();
      continue;
    }
    const uint64_t before = moves_;
    if (drivers_ == 0 && open_ns == now) try {
        go_on_with_all();
      } catch (...) {  // no memory: the next time
      }
    if (moves_ != before) moved_ns = now;
    const int64_t nap = std::clamp((now - moved_ns) / 8, kShortestNs, kLongestNs);
    changed_.wait_for(lock, std::chrono::nanoseconds(drivers_ == 0 && open_ns == now ? nap : kLongestNs));
  }
}

}  // namespace gsel::hosts
