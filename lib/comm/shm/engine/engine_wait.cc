// comm/shm/engine/engine_wait.cc: how callers wait for requests or cancel them; see engine.h.
#include <chrono>

#include "comm/shm/engine/engine.h"

namespace gsel::shm {

// A request that is done may outlive its engine.
bool EngineRequest::wait(double seconds) {
  require_own_process(fork_generation, "request");
  if (!done.load(std::memory_order_acquire)) {
    if (seconds < 0)
      engine.wait(*this);
    else if (!engine.wait_for(*this, seconds))
      return false;
  }
  if (failure) throw Error(*failure);
  return true;
}

bool EngineRequest::waits_for_itself() const {
  return !done.load(std::memory_order_acquire) && engine.in_operation();
}

bool EngineRequest::tell(const std::shared_ptr<Listener>& told) {
  require_own_process(fork_generation, "request");
  if (done.load(std::memory_order_acquire))
    told->ended();
  else
    engine.tell(*this, told);
  return true;
}

bool EngineRequest::cancel() {
  require_own_process(fork_generation, "request");
  return calls.size() == 1 && !done.load(std::memory_order_acquire) && engine.cancel(*this);
}

void EngineRequest::wait_or_cancel() {
  require_own_process(fork_generation, "request");
  if (!done.load(std::memory_order_acquire)) engine.wait_or_cancel(*this);
}

// Drives if it may, so that the request needs no other thread; else waits for the driver.
void Engine::wait(EngineRequest& request) {
  if (request.done.load(std::memory_order_acquire)) return;
  std::unique_lock lock(mutex_);
  if (request.done.load(std::memory_order_relaxed)) return;
  request.awaited.store(true, std::memory_order_relaxed);
  waiters_.push_back(&request);
  waiting_.fetch_add(1, std::memory_order_relaxed);
  if (driven_ || !may_drive(request)) {
    begin_postponed();
    changed_.notify_all();
    signals_.wake_driver();
  }
  for (;;) {
    changed_.wait(lock,
                  [&] { return request.done.load(std::memory_order_relaxed) || (!driven_ && may_drive(request)); });
    if (request.done.load(std::memory_order_relaxed)) break;
    driven_ = true;
    lock.unlock();
    stop_listening();
    drive(&request);
    mailbox_.stop_awaiting();
    const bool goes_on = (mailbox_.is_empty() && queue_.empty()) || advance_alone();
    lock.lock();
    postponed_ = postponed_ && goes_on;
    release();
  }
}

void Engine::tell(EngineRequest& request, const std::shared_ptr<Listener>& listener) {
  const std::lock_guard lock(mutex_);
  if (request.done.load(std::memory_order_relaxed)) return listener->ended();
  request.listener = listener;
  request.awaited.store(true, std::memory_order_relaxed);
  signals_.wake_driver();
}

bool Engine::wait_for(EngineRequest& request, double seconds) {
  const bool done = request.done.load(std::memory_order_acquire);
  if (done || seconds == 0) return done || look_once(request);  // polling does not start the timeout
  request.awaited.store(true, std::memory_order_relaxed);
  return look_for(request, seconds);
}

// Advances messages if no other thread does.
bool Engine::look_once(EngineRequest& request) {
  std::unique_lock lock(mutex_);
  const bool begins = queued_ > 0 && !postponed_;  // the thread will run a collective
  if (!request.done.load(std::memory_order_relaxed) && !driven_ && asleep_ && !begins &&
      turns_.load(std::memory_order_relaxed) == 0)
    advance(lock);
  return request.done.load(std::memory_order_relaxed);
}

bool Engine::look_for(EngineRequest& request, double seconds) {
  const auto done = [&] { return request.done.load(std::memory_order_acquire); };
  std::unique_lock lock(mutex_);
  begin_postponed();
  lookers_.fetch_add(1, std::memory_order_relaxed);
  const bool ended = changed_.wait_for(lock, std::chrono::duration<double>(seconds), done);
  lookers_.fetch_sub(1, std::memory_order_relaxed);
  return ended;
}

// The driver cancels; this thread becomes the driver if there is none.
bool Engine::cancel(EngineRequest& request) {
  if (request.done.load(std::memory_order_acquire)) return false;
  require_outside_operation();
  Cancel own{&request};
  std::unique_lock lock(mutex_);
  cancels_.push_back(&own);
  news_.store(true, std::memory_order_seq_cst);
  if (driven_ || asleep_) signals_.wake_driver();
  changed_.wait(lock, [&] { return own.answered || !driven_; });
  if (!own.answered) {
    driven_ = true;
    lock.unlock();
    admit();
    lock.lock();
    release();
  }
  return own.cancelled;
}

// wait() would start the timeout after which an unmatched message breaks the communicator.
void Engine::wait_or_cancel(EngineRequest& request) {
  if (request.done.load(std::memory_order_acquire)) return;
  if (!request.transfers.empty() && request.calls.size() == 1) {
    const double own = request.calls.front().timeout_s;
    request.awaited.store(false, std::memory_order_relaxed);
    if (look_for(request, own > 0 ? own : static_cast<double>(signals_.timeout_ns()) * 1e-9) || cancel(request)) return;
  }
  wait(request);
}

}  // namespace gsel::shm
