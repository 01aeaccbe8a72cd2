// comm/shm/engine/engine.cc: see engine.h.
#include "comm/shm/engine/engine.h"

#include <algorithm>
#include <utility>

#include "base/current_error.h"
#include "base/dtype.h"
#include "comm/call/collective.h"

namespace gsel::shm {
namespace {

constexpr int64_t kThreadSpinNs = 2'000;  // the thread's processor may be the caller's

constexpr uint64_t kSmallBytes = 4096;  // a microsecond, once all ranks are there

thread_local const char the_thread = 0;

}  // namespace

bool is_small(const gsel_collective& call) {
  const CollectiveRow& row = row_of(call.kind);
  const bool calls_back = row.reduces && call.op >= GSEL_OP_USER;  // not before its start has returned
  return row.message || (!row.counted() && !calls_back && call.count * dtype_bytes(call.dtype) <= kSmallBytes);
}

Work::Work(Engine& with, const gsel_collective* given, uint64_t n, bool opened)
    : engine(with), calls(given, given + n), is_open(opened), open(n), collectives(0) {
  size_t messages = 0;
  for (const gsel_collective& call : calls) messages += is_point_to_point(call.kind);
  transfers.resize(messages);
  collectives = n - messages;
}

Work::Work(Engine& with, std::function<void()> given)
    : engine(with), task(std::move(given)), is_open(false), open(1), collectives(1) {}

class Engine::InOperation {
 public:
  explicit InOperation(Engine& engine) : engine_(engine) {
    engine_.operating_.store(&the_thread, std::memory_order_relaxed);
  }
  ~InOperation() { engine_.operating_.store(nullptr, std::memory_order_relaxed); }
  InOperation(const InOperation&) = delete;
  InOperation& operator=(const InOperation&) = delete;

 private:
  Engine& engine_;
};

bool Engine::in_operation() const {
  return operating_.load(std::memory_order_relaxed) == &the_thread;
}

void Engine::require_outside_operation() const {
  if (in_operation())
    fail(GSEL_ERR_STATE,
         "a call on communicator {} from an operation that a call on it runs, whose end it would wait for; make it "
         "behind that call",
         at_.name());
}

void Engine::make(const gsel_collective& given, bool grouped) {
  if (is_point_to_point(given.kind)) return mailbox_.run(given);
  if (given.op < GSEL_OP_USER) return collectives_.run(given, grouped);
  const InOperation in_operation(*this);
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

void Engine::require_threads() const {
  if (!threads_allowed_)
    fail(GSEL_ERR_UNSUPPORTED,
         "a request needs a thread and the communicator was made with GSEL_COMM_NO_THREAD; make the call itself");
}

std::unique_ptr<Pending> Engine::start(std::function<void()> task) {
  auto work = std::make_unique<Work>(*this, std::move(task));
  start(*work, true);
  return work;
}

std::unique_ptr<Pending> Engine::start(std::span<const gsel_collective> calls, bool promptly, bool is_open) {
  require_threads();
  auto work = std::make_unique<Work>(*this, calls.data(), calls.size(), is_open);
  start(*work, promptly);
  return work;
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
  ++overlaps_;
  busy_.store(true, std::memory_order_release);
}

void Engine::end_overlap() {
  std::lock_guard lock(mutex_);
  if (--overlaps_ == 0 && works_ == 0 && !driven_) busy_.store(false, std::memory_order_release);
}

// Under the lock.
void Engine::submit(Work& work) {
  require_outside_operation();
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
  if (!work.task && std::ranges::all_of(work.calls, is_small)) recent_ = true;
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
    if (work->task) queue_.push_back({work, nullptr});
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
    transfer.is_open = work.is_open;
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
    call ? make(*call, work->calls.size() > 1) : work->task();
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
