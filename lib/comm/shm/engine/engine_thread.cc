// comm/shm/engine/engine_thread.cc: which thread drives the calls of a rank: the engine's thread, a caller, or a caller
// with exclusive use of the rank; see engine.h.
#include <algorithm>

#include "base/error.h"
#include "base/threads.h"
#include "comm/shm/engine/engine.h"

namespace gsel::shm {
namespace {

constexpr int64_t kRestNs = 20'000'000;  // longest sleep in the arena without a start

}  // namespace

Engine::Turn::Turn(Engine& engine, Thread thread) : engine_(engine), thread_(thread) {
  engine.require_outside_operation();
  std::unique_lock lock(engine.mutex_);
  const auto is_free = [&] {
    return !engine.driven_ && engine.queued_ == 0 && (thread == Thread::may_sleep || !engine.asleep_);
  };
  if (thread == Thread::awake) ++engine.awake_turns_;
  if (!is_free()) {
    engine.turns_.fetch_add(1, std::memory_order_relaxed);
    engine.waiting_.fetch_add(1, std::memory_order_relaxed);
    engine.wake_thread();
    engine.signals_.wake_driver();
    engine.changed_.wait(lock, is_free);
    engine.turns_.fetch_sub(1, std::memory_order_relaxed);
    engine.waiting_.fetch_sub(1, std::memory_order_relaxed);
  }
  engine.driven_ = true;
  lock.unlock();
  if (thread == Thread::awake) engine.stop_listening();
  engine.admit();
}

Engine::Turn::~Turn() {
  engine_.mailbox_.stop_awaiting();
  std::lock_guard lock(engine_.mutex_);
  if (thread_ == Thread::awake) --engine_.awake_turns_;
  engine_.release();
}

void Engine::start_thread() {
  if (!thread_.joinable()) thread_ = request_thread([this] { run_thread(); });
}

void Engine::wake_thread() noexcept {
  changed_.notify_all();
  if (asleep_) Breaking::wake_listener(at_.mine());
}

// Gives up driving. Wakes the thread if it sleeps in the arena, should drive, and no other rank would wake it.
void Engine::release() noexcept {
  driven_ = false;
  if (open_requests_ == 0 && overlaps_ == 0) busy_.store(false, std::memory_order_release);
  changed_.notify_all();
  const bool hears = listens_.load(std::memory_order_relaxed) && (postponed_ || (queued_ == 0 && !has_news()));
  if (asleep_ && !hears && thread_drives()) Breaking::wake_listener(at_.mine());
}

// The thread drives only if no waiter may.
bool Engine::thread_drives() const {
  return !driven_ && open_requests_ > 0 && (queued_ > 0 || turns_.load(std::memory_order_relaxed) == 0) &&
         std::ranges::none_of(waiters_, [&](const EngineRequest* request) { return may_drive(*request); });
}

void Engine::run_thread() {
  std::unique_lock lock(mutex_);
  for (;;) {
    rest(lock);
    if (!thread_drives()) return;
    driven_ = true;
    postponed_ = false;
    lock.unlock();
    stop_listening();
    on_thread_ = true;
    const auto wakeup = drive(nullptr);
    on_thread_ = false;
    if (wakeup)
      listens_.store(true, std::memory_order_relaxed);
    else
      mailbox_.stop_awaiting();
    lock.lock();
    release();
    if (wakeup) sleep_in_arena(lock, wakeup->word, wakeup->most_ns);
  }
}

// Sleeps until the thread should drive or the engine stops.
void Engine::rest(std::unique_lock<std::mutex>& lock) {
  while (!(closing_ && open_requests_ == 0) && !thread_drives()) {
    if (!recent_ || awake_turns_ > 0) {
      const RestingThread resting;
      changed_.wait(lock);
      continue;
    }
    recent_ = false;
    const int64_t began = os::now_ns();
    sleep_in_arena(lock, at_.mine().wakeups.load(std::memory_order_seq_cst), kRestNs);
    if (os::now_ns() - began < kRestNs) recent_ = true;
  }
}

void Engine::sleep_in_arena(std::unique_lock<std::mutex>& lock, uint32_t word, int64_t most_ns) {
  asleep_ = true;
  lock.unlock();
  os::futex_wait(at_.mine().wakeups, word, most_ns);
  stop_listening();
  lock.lock();
  asleep_ = false;
  changed_.notify_all();
}

// Called by a caller that does not wait. No barrier; see engine.h.
void Engine::advance(std::unique_lock<std::mutex>& lock) {
  driven_ = true;
  lock.unlock();
  const bool goes_on = advance_alone();
  lock.lock();
  postponed_ = postponed_ && goes_on;
  release();
}

// false: a collective needs the thread.
bool Engine::advance_alone() noexcept {
  bool goes_on = true;
  try {
    admit();
    goes_on = advance_collectives();
    for (;;) {
      while (mailbox_.progress()) continue;
      if (mailbox_.is_empty() || listens_.load(std::memory_order_relaxed)) break;
      listen();
    }
  } catch (...) {
    const Error error = current_error();
    mailbox_.drop_all(&error);
  }
  if (mailbox_.is_empty() && queue_.empty()) stop_listening();
  return goes_on;
}

// Runs small collectives as far as possible without waiting for another rank.
bool Engine::advance_collectives() {
  while (!queue_.empty()) {
    const auto [request, call] = queue_.front();
    if (!call || !is_small(*call)) return false;
    if (!collectives_.has_begun()) collectives_.begin(*call, request->calls.size() > 1);
    if (!collectives_.ends_with_headers()) return false;
    if (!collectives_.is_ready()) return true;
    run_collective();
  }
  return true;
}

void Engine::listen() noexcept {
  if (!listens_.exchange(true, std::memory_order_relaxed)) at_.mine().listening.fetch_add(1, std::memory_order_seq_cst);
}

void Engine::stop_listening() noexcept {
  if (listens_.exchange(false, std::memory_order_relaxed)) at_.mine().listening.fetch_sub(1, std::memory_order_seq_cst);
}

}  // namespace gsel::shm
