// comm/shm/engine.cc: see engine.h.
#include "comm/shm/engine.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/current_error.h"
#include "base/dtype.h"
#include "comm/collective.h"

namespace gsel::shm {
namespace {

constexpr int64_t kThreadSpinNs = 2'000;  // the thread's processor may be the caller's

// Below which a collective is small. 0: none is, since a rank that had begun one and came late to its end was seen to
// be told of an abort that followed it.
constexpr uint64_t kSmallBytes = 0;

}  // namespace

bool is_small(const gsel_collective& call) {
  const CollectiveRow& row = row_of(call.kind);
  return row.message || (!row.counted() && call.count * dtype_bytes(call.dtype) < kSmallBytes);
}

Work::Work(Engine& with, const gsel_collective* given, uint64_t n)
    : engine(with), calls(given, given + n), open(n), collectives(0) {
  size_t messages = 0;
  for (const gsel_collective& call : calls) messages += is_point_to_point(call.kind);
  transfers.resize(messages);
  collectives = n - messages;
}

void Engine::make(const gsel_collective& given, bool grouped) {
  if (is_point_to_point(given.kind)) return mailbox_.run(given);
  collectives_.run(given, grouped);
}

// A message lets others go on while it waits, so that it is run as a group of one.
void Engine::call_beside_others(const gsel_collective& given) {
  if (is_point_to_point(given.kind)) return group({&given, 1});
  const Turn turn(*this, Thread::may_sleep);
  make(given);
}

void Engine::group(std::span<const gsel_collective> calls) {
  Work work(*this, calls.data(), calls.size());
  run(work);
}

std::unique_ptr<Pending> Engine::start(std::span<const gsel_collective> calls, bool promptly) {
  if (!threads_allowed_)
    fail(GSEL_ERR_UNSUPPORTED,
         "a request needs a thread and the communicator was made with GSEL_COMM_NO_THREAD; make the call itself");
  auto work = std::make_unique<Work>(*this, calls.data(), calls.size());
  start(*work, promptly);
  return work;
}

// What is done may have outlived its engine.
bool Work::wait(double seconds) {
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

bool Work::tell(const std::shared_ptr<Listener>& told) {
  require_own_process(fork_generation, "request");
  if (done.load(std::memory_order_acquire))
    told->ended();
  else
    engine.tell(*this, told);
  return true;
}

bool Work::cancel() {
  require_own_process(fork_generation, "request");
  return calls.size() == 1 && !done.load(std::memory_order_acquire) && engine.cancel(*this);
}

void Work::wait_or_cancel() {
  require_own_process(fork_generation, "request");
  if (!done.load(std::memory_order_acquire)) engine.wait_or_cancel(*this);
}

bool Engine::under_way() {
  std::lock_guard lock(mutex_);
  return works_ > 0;
}

void Engine::stop() {
  if (!thread_.joinable()) return;
  {
    std::lock_guard lock(mutex_);
    closing_ = true;
    wake_thread();
  }
  signals_.nudge();
  thread_.join();
}

void Engine::allow_overlap() {
  std::lock_guard lock(mutex_);
  overlap_ = true;
  busy_.store(true, std::memory_order_release);
}

// Under the lock.
void Engine::submit(Work& work) {
  waiters_.reserve(static_cast<size_t>(works_) + 1);  // so that a wait cannot fail while its work is under way
  inbox_.push_back(&work);
  ++works_;
  queued_ += work.collectives;
  busy_.store(true, std::memory_order_relaxed);
  news_.store(true, std::memory_order_seq_cst);
}

void Engine::start(Work& work, bool promptly) {
  if (work.open == 0) return work.done.store(true, std::memory_order_release);
  std::unique_lock lock(mutex_);
  start_thread();
  submit(work);
  if (work.collectives == 0) recent_ = true;
  if (driven_) return signals_.nudge();
  if (!asleep_) {
    lock.unlock();  // or the thread would wake up and wait for it
    return changed_.notify_all();
  }
  if (work.collectives > 0 && (promptly || !postpone(work))) {
    postponed_ = false;
    return wake_thread();
  }
  if (turns_.load(std::memory_order_relaxed) == 0) advance(lock);
}

void Engine::run(Work& work) {
  if (work.open == 0) return;
  {
    const std::lock_guard lock(mutex_);
    submit(work);
  }
  wait(work);
  if (work.failure) throw Error(*work.failure);
}

// Whether it can do without the thread. Ranks that sleep for this one may have come before it listens.
bool Engine::postpone(const Work& work) {
  const bool first = queued_ == work.collectives;
  if ((!first && !postponed_) || !std::ranges::all_of(work.calls, is_small)) return false;
  listen();
  postponed_ = first || at_.mine().sleepers.load(std::memory_order_seq_cst) == 0;
  return postponed_;
}

// Somebody asks for their end, and no thread of the caller's can run them.
void Engine::begin_postponed() noexcept {
  if (!std::exchange(postponed_, false) || queued_ == 0 || driven_) return;
  wake_thread();
}

// Drives where it may, so that the work needs no other thread; else waits for who does.
void Engine::wait(Work& work) {
  if (work.done.load(std::memory_order_acquire)) return;
  std::unique_lock lock(mutex_);
  if (work.done.load(std::memory_order_relaxed)) return;
  work.awaited.store(true, std::memory_order_relaxed);
  waiters_.push_back(&work);
  waiting_.fetch_add(1, std::memory_order_relaxed);
  if (driven_ || !may_drive(work)) {
    begin_postponed();
    changed_.notify_all();
    signals_.nudge();
  }
  for (;;) {
    changed_.wait(lock, [&] { return work.done.load(std::memory_order_relaxed) || (!driven_ && may_drive(work)); });
    if (work.done.load(std::memory_order_relaxed)) break;
    driven_ = true;
    lock.unlock();
    stop_listening();
    drive(&work);
    mailbox_.stop_awaiting();
    const bool goes_on = (mailbox_.is_empty() && queue_.empty()) || advance_alone();
    lock.lock();
    postponed_ = postponed_ && goes_on;
    release();
  }
}

void Engine::tell(Work& work, const std::shared_ptr<Listener>& listener) {
  const std::lock_guard lock(mutex_);
  if (work.done.load(std::memory_order_relaxed)) return listener->ended();
  work.listener = listener;
  work.awaited.store(true, std::memory_order_relaxed);
  signals_.nudge();
}

bool Engine::wait_for(Work& work, double seconds) {
  const bool done = work.done.load(std::memory_order_acquire);
  if (done || seconds == 0) return done || look_once(work);  // a look is no wait
  work.awaited.store(true, std::memory_order_relaxed);
  return look_for(work, seconds);
}

// Lets messages advance where nobody else does.
bool Engine::look_once(Work& work) {
  std::unique_lock lock(mutex_);
  const bool begins = queued_ > 0 && !postponed_;  // on the thread
  if (!work.done.load(std::memory_order_relaxed) && !driven_ && asleep_ && !begins &&
      turns_.load(std::memory_order_relaxed) == 0)
    advance(lock);
  return work.done.load(std::memory_order_relaxed);
}

bool Engine::look_for(Work& work, double seconds) {
  const auto done = [&] { return work.done.load(std::memory_order_acquire); };
  std::unique_lock lock(mutex_);
  begin_postponed();
  lookers_.fetch_add(1, std::memory_order_relaxed);
  const bool ended = changed_.wait_for(lock, std::chrono::duration<double>(seconds), done);
  lookers_.fetch_sub(1, std::memory_order_relaxed);
  return ended;
}

// The driver does it, which is this thread where there is no other.
bool Engine::cancel(Work& work) {
  if (work.done.load(std::memory_order_acquire)) return false;
  Cancel own{&work};
  std::unique_lock lock(mutex_);
  cancels_.push_back(&own);
  news_.store(true, std::memory_order_seq_cst);
  if (driven_ || asleep_) signals_.nudge();
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

// A wait for its end would begin the time after which a message breaks the communicator.
void Engine::wait_or_cancel(Work& work) {
  if (work.done.load(std::memory_order_acquire)) return;
  if (!work.transfers.empty() && work.calls.size() == 1) {
    const double own = work.calls.front().timeout_s;
    work.awaited.store(false, std::memory_order_relaxed);
    if (look_for(work, own > 0 ? own : static_cast<double>(signals_.timeout_ns()) * 1e-9) || cancel(work)) return;
  }
  wait(work);
}

// Until the own work is done or what is next is not for its waiter to run. The thread, which has no work of its own:
// until somebody else would drive, nothing is under way, or it is time to sleep; then what prepare_sleep said.
std::optional<Wakeup> Engine::drive(Work* own) {
  Idle idle;
  for (;;) {
    admit();
    if (own && own->done.load(std::memory_order_relaxed)) return {};
    if (!queue_.empty()) {
      if (own && own->collectives == 0) return {};
      if (!own) mailbox_.stop_awaiting();
      run_collective();
      idle = {};
      continue;
    }
    if (own && turns_.load(std::memory_order_relaxed) > 0) return {};
    if (mailbox_.is_empty() || (!own && waiting_.load(std::memory_order_relaxed) > 0)) return {};
    try {
      if (mailbox_.progress()) {
        idle = {};
        if (!own) mailbox_.stop_awaiting();
      } else if (mailbox_.looked_long(idle, own ? signals_.spin_ns() : kThreadSpinNs)) {
        if (own) {
          mailbox_.rest();
          continue;
        }
        // What was told before the last sleep stays until here, for others who ask just now.
        blocks_caller() ? mailbox_.publish_awaited() : mailbox_.stop_awaiting();
        if (const auto wakeup = mailbox_.prepare_sleep()) return wakeup;
      }
    } catch (...) {
      const Error error = current_error();
      mailbox_.drop_all(&error);
    }
  }
}

void Engine::admit() {
  if (!has_news()) return;
  std::vector<Work*> fresh;
  std::vector<Cancel*> cancels;
  {
    std::lock_guard lock(mutex_);
    fresh.swap(inbox_);
    cancels.swap(cancels_);
    news_.store(false, std::memory_order_relaxed);
  }
  for (Work* work : fresh) {
    for (const gsel_collective& call : work->calls)
      if (!is_point_to_point(call.kind)) queue_.push_back({work, &call});
    begin_messages(*work);  // last: it may be done by then
  }
  for (Cancel* cancel : cancels) {
    const bool cancelled = try_cancel(*cancel->work);
    std::lock_guard lock(mutex_);
    cancel->cancelled = cancelled;
    cancel->answered = true;
    changed_.notify_all();
  }
}

bool Engine::try_cancel(Work& work) {
  if (work.done.load(std::memory_order_relaxed)) return false;
  if (!(work.transfers.empty() ? cancel_collective(work) : mailbox_.cancel(work.transfers.front()))) return false;
  end_call(work, nullptr);
  return true;
}

// What this rank has not begun another one may have, if it is the next.
bool Engine::cancel_collective(Work& work) {
  const auto place = std::ranges::find(queue_, &work, &Collective::work);
  if (place == queue_.end()) return false;
  if (place == queue_.begin() && (collectives_.has_begun() || collectives_.next_is_posted())) return false;
  queue_.erase(place);
  std::lock_guard lock(mutex_);
  --queued_;
  --work.collectives;
  return true;
}

void Engine::begin_messages(Work& work) {
  size_t messages = work.transfers.size();
  Transfer* next = work.transfers.data();
  for (const gsel_collective* call = work.calls.data(); messages > 0; ++call) {
    if (!is_point_to_point(call->kind)) continue;
    --messages;
    Transfer& transfer = *next++;
    transfer.call.grouped = work.calls.size() > 1;
    try {
      mailbox_.room_for_one();
      mailbox_.begin(transfer, *call);
    } catch (...) {
      const Error error = current_error();
      end_call(work, &error);
      continue;
    }
    transfer.work = &work;
    mailbox_.adopt(transfer);
  }
}

void Engine::run_collective() {
  const auto [work, call] = queue_.front();
  queue_.pop_front();
  {
    std::lock_guard lock(mutex_);
    --queued_;
  }
  std::optional<Error> failure;
  running_ = work;
  try {
    make(*call, work->calls.size() > 1);
  } catch (...) {
    failure = current_error();
  }
  running_ = nullptr;
  {
    std::lock_guard lock(mutex_);
    --work->collectives;
  }
  end_call(*work, failure ? &*failure : nullptr);
}

void Engine::end_call(Work& work, const Error* failure) noexcept {
  if (failure && !work.failure) try {
      work.failure = *failure;
    } catch (...) {
      work.failure.emplace(GSEL_ERR_NOMEM, std::string());
    }
  std::lock_guard lock(mutex_);
  if (--work.open > 0) return;
  --works_;
  waiting_.fetch_sub(static_cast<int>(std::erase(waiters_, &work)), std::memory_order_relaxed);
  const std::shared_ptr<Listener> listener = std::move(work.listener);
  work.done.store(true, std::memory_order_release);
  changed_.notify_all();
  if (listener) listener->ended();
}

}  // namespace gsel::shm
