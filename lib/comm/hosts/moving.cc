// comm/hosts/moving.cc: which thread advances messages. A caller that waits for a message advances all others as well.
// While none waits, a thread does, which is created with the first asynchronous call. It polls while anything is under
// way, less often while nothing moves; else it sleeps. See messages.h.
#include <algorithm>
#include <chrono>

#include "base/threads.h"
#include "comm/hosts/messages.h"

namespace gsel::hosts {
namespace {

constexpr int64_t kAllNs = 200'000;  // between two polls of all messages, by a caller that waits for one
constexpr int64_t kBesideNs = 10'000'000;
constexpr int64_t kShortestNs = 50'000, kLongestNs = 2'000'000;  // between two polls of the thread
constexpr int64_t kAwakeNs = 20'000'000;                         // of polling before the thread sleeps until woken

}  // namespace

// Whether it is done. looks: does not wait for the lock.
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
    progress(started);
  }
  if (!started.done_ && started.is_blocking_) detect_crossing(started);
  return started.done_;
}

// Under the lock.
void Messages::go_on_with_all() {
  take_frames();
  match();
  for (Started* started : started_) progress(*started);
  for (size_t q = 0; q < peers_.size(); ++q)
    if (peers_[q]) tend(static_cast<int32_t>(q), *peers_[q]);
  last_all_ns_ = os::now_ns();
}

// Takes frames and answers questions only; the thread and callers advance posted calls.
void Messages::attend() noexcept {
  const int64_t now = os::now_ns();
  if (now - last_attended_ns_.load(std::memory_order_relaxed) < kBesideNs) return;
  last_attended_ns_.store(now, std::memory_order_relaxed);
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock() || is_closed_) return;
  try {
    take_frames();
    for (size_t q = 0; q < peers_.size(); ++q)
      if (peers_[q]) answer_question(static_cast<int32_t>(q), *peers_[q]);
  } catch (...) {  // no memory: tries again at the next call
  }
}

bool Messages::has_open() const {
  return std::ranges::any_of(started_, [](const Started* one) { return !one->done_; }) ||
         std::ranges::any_of(peers_, [](const auto& peer) {
           return peer && !peer->gone && !(peer->behind.empty() && peer->dropped.empty());
         });
}

void Messages::make_thread() {
  if (!thread_.joinable() && !is_ending_) thread_ = request_thread([this] { run_thread(); });
}

// If no thread can be created, the next caller advances messages.
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
      } catch (...) {  // no memory: tries again in the next round
      }
    if (moves_ != before) moved_ns = now;
    const int64_t nap = std::clamp((now - moved_ns) / 8, kShortestNs, kLongestNs);
    changed_.wait_for(lock, std::chrono::nanoseconds(drivers_ == 0 && open_ns == now ? nap : kLongestNs));
  }
}

}  // namespace gsel::hosts
