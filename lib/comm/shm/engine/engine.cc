// comm/shm/engine/engine.cc: see engine.h.
#include "comm/shm/engine/engine.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/types.h"
#include "comm/call/collective.h"

namespace gsel::shm {
namespace {

constexpr int64_t kThreadSpinNs = 2'000;  // short, since the thread may share the caller's processor

constexpr uint64_t kSmallBytes = 4096;  // takes about a microsecond after all ranks have begun

thread_local const char the_thread = 0;  // its address identifies the thread

}  // namespace

bool is_small(const gsel_collective& call) {
  const CollectiveRow& row = row_of(call.kind);
  const bool calls_back = row.reduces && call.op >= GSEL_OP_USER;  // must not run inside start
  return row.message || (!row.counted() && !calls_back && call.count * dtype_bytes(call.dtype) <= kSmallBytes);
}

EngineRequest::EngineRequest(Engine& with, const gsel_collective* given, uint64_t n, bool opened)
    : DrivenRequest(opened), engine(with), calls(given, given + n), open(n), collectives(0) {
  size_t messages = 0;
  for (const gsel_collective& call : calls) messages += is_point_to_point(call.kind);
  transfers.resize(messages);
  collectives = n - messages;
}

EngineRequest::EngineRequest(Engine& with, std::function<void()> given)
    : DrivenRequest(false), engine(with), task(std::move(given)), open(1), collectives(1) {}

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
         "this call on communicator {} was made inside a reduction operation of another call on it and would wait for "
         "itself; make it after that call",
         at_.name());
}

void Engine::make(const gsel_collective& given, bool grouped) {
  if (is_point_to_point(given.kind)) return mailbox_.run(given);
  if (given.op < GSEL_OP_USER) return collectives_.run(given, grouped);
  const InOperation in_operation(*this);
  collectives_.run(given, grouped);
}

// A message runs as a group of one, so that other calls advance while it waits.
void Engine::call_concurrently(const gsel_collective& given) {
  if (is_point_to_point(given.kind)) return group({&given, 1});
  const Turn turn(*this, Thread::may_sleep);
  make(given);
}

void Engine::group(std::span<const gsel_collective> calls) {
  EngineRequest request(*this, calls.data(), calls.size());
  run(request);
}

void Engine::require_threads() const {
  if (!threads_allowed_)
    fail(GSEL_ERR_UNSUPPORTED,
         "a request needs a thread and the communicator was made with GSEL_COMM_NO_THREAD; make the call itself");
}

std::unique_ptr<BackendRequest> Engine::start(std::function<void()> task) {
  auto request = std::make_unique<EngineRequest>(*this, std::move(task));
  start(*request, true);
  return request;
}

std::unique_ptr<BackendRequest> Engine::start(std::span<const gsel_collective> calls, bool promptly, bool is_open) {
  require_threads();
  auto request = std::make_unique<EngineRequest>(*this, calls.data(), calls.size(), is_open);
  start(*request, promptly);
  return request;
}

bool Engine::under_way() {
  std::lock_guard lock(mutex_);
  return open_requests_ > 0;
}

void Engine::stop() {
  if (!thread_.joinable()) return;
  {
    std::lock_guard lock(mutex_);
    closing_ = true;
    wake_thread();
  }
  signals_.wake_driver();
  thread_.join();
}

void Engine::allow_overlap() {
  std::lock_guard lock(mutex_);
  ++overlaps_;
  busy_.store(true, std::memory_order_release);
}

void Engine::end_overlap() {
  std::lock_guard lock(mutex_);
  if (--overlaps_ == 0 && open_requests_ == 0 && !driven_) busy_.store(false, std::memory_order_release);
}

// Under the lock.
void Engine::submit(EngineRequest& request) {
  require_outside_operation();
  waiters_.reserve(static_cast<size_t>(open_requests_) + 1);  // so that wait() cannot fail while the request runs
  inbox_.push_back(&request);
  ++open_requests_;
  queued_ += request.collectives;
  busy_.store(true, std::memory_order_relaxed);
  news_.store(true, std::memory_order_seq_cst);
}

void Engine::start(EngineRequest& request, bool promptly) {
  if (request.open == 0) return request.done.store(true, std::memory_order_release);
  std::unique_lock lock(mutex_);
  start_thread();
  submit(request);
  if (!request.task && std::ranges::all_of(request.calls, is_small)) recent_ = true;
  if (driven_) return signals_.wake_driver();
  if (!asleep_) {
    lock.unlock();  // so that the woken thread does not wait for the lock
    return changed_.notify_all();
  }
  if (request.collectives > 0 && (promptly || !postpone(request))) {
    postponed_ = false;
    return wake_thread();
  }
  if (turns_.load(std::memory_order_relaxed) == 0) advance(lock);
}

void Engine::run(EngineRequest& request) {
  if (request.open == 0) return;
  {
    const std::lock_guard lock(mutex_);
    submit(request);
  }
  wait(request);
  if (request.failure) throw Error(*request.failure);
}

// Whether the thread need not run the request now. Other ranks may already sleep for this one: they do not wake it.
bool Engine::postpone(const EngineRequest& request) {
  const bool first = queued_ == request.collectives;
  if ((!first && !postponed_) || !std::ranges::all_of(request.calls, is_small)) return false;
  listen();
  postponed_ = first || at_.mine().sleepers.load(std::memory_order_seq_cst) == 0;
  return postponed_;
}

// A caller asks for the end of postponed collectives and cannot drive.
void Engine::begin_postponed() noexcept {
  if (!std::exchange(postponed_, false) || queued_ == 0 || driven_) return;
  wake_thread();
}

// Drives until the own request is done or the next step is not for its waiter to run. The engine's thread has no own
// request: it drives until a caller wants to, nothing is under way, or it is time to sleep; then returns its Wakeup.
std::optional<Wakeup> Engine::drive(EngineRequest* own) {
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
      } else if (mailbox_.polled_long(idle, own ? signals_.spin_ns() : kThreadSpinNs)) {
        if (own) {
          mailbox_.rest();
          continue;
        }
        // Until here the wait published before the last sleep stays visible to other ranks.
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
  std::vector<EngineRequest*> fresh;
  std::vector<Cancel*> cancels;
  {
    std::lock_guard lock(mutex_);
    fresh.swap(inbox_);
    cancels.swap(cancels_);
    news_.store(false, std::memory_order_relaxed);
  }
  for (EngineRequest* request : fresh) {
    if (request->task) queue_.push_back({request, nullptr});
    for (const gsel_collective& call : request->calls)
      if (!is_point_to_point(call.kind)) queue_.push_back({request, &call});
    begin_messages(*request);  // last, since it may complete the request
  }
  for (Cancel* cancel : cancels) {
    const bool cancelled = try_cancel(*cancel->request);
    std::lock_guard lock(mutex_);
    cancel->cancelled = cancelled;
    cancel->answered = true;
    changed_.notify_all();
  }
}

bool Engine::try_cancel(EngineRequest& request) {
  if (request.done.load(std::memory_order_relaxed)) return false;
  if (!(request.transfers.empty() ? cancel_collective(request) : mailbox_.cancel(request.transfers.front())))
    return false;
  end_call(request, nullptr);
  return true;
}

// If the collective is next, another rank may have begun it even if this one has not.
bool Engine::cancel_collective(EngineRequest& request) {
  const auto place = std::ranges::find(queue_, &request, &Collective::request);
  if (place == queue_.end()) return false;
  if (place == queue_.begin() && (collectives_.has_begun() || collectives_.next_is_posted())) return false;
  queue_.erase(place);
  std::lock_guard lock(mutex_);
  --queued_;
  --request.collectives;
  return true;
}

void Engine::begin_messages(EngineRequest& request) {
  size_t messages = request.transfers.size();
  Transfer* next = request.transfers.data();
  for (const gsel_collective* call = request.calls.data(); messages > 0; ++call) {
    if (!is_point_to_point(call->kind)) continue;
    --messages;
    Transfer& transfer = *next++;
    transfer.call.grouped = request.calls.size() > 1;
    transfer.is_open = request.is_open;
    try {
      mailbox_.room_for_one();
      mailbox_.begin(transfer, *call);
    } catch (...) {
      const Error error = current_error();
      end_call(request, &error);
      continue;
    }
    transfer.request = &request;
    mailbox_.adopt(transfer);
  }
}

void Engine::run_collective() {
  const auto [request, call] = queue_.front();
  queue_.pop_front();
  {
    std::lock_guard lock(mutex_);
    --queued_;
  }
  std::optional<Error> failure;
  running_ = request;
  try {
    call ? make(*call, request->calls.size() > 1) : request->task();
  } catch (...) {
    failure = current_error();
  }
  running_ = nullptr;
  {
    std::lock_guard lock(mutex_);
    --request->collectives;
  }
  end_call(*request, failure ? &*failure : nullptr);
}

void Engine::end_call(DrivenRequest& driven, const Error* failure) noexcept {
  auto& request = static_cast<EngineRequest&>(driven);
  if (failure && !request.failure) try {
      request.failure = *failure;
    } catch (...) {
      request.failure.emplace(GSEL_ERR_NOMEM, std::string());
    }
  std::lock_guard lock(mutex_);
  if (--request.open > 0) return;
  --open_requests_;
  waiting_.fetch_sub(static_cast<int>(std::erase(waiters_, &request)), std::memory_order_relaxed);
  const std::shared_ptr<Listener> listener = std::move(request.listener);
  request.done.store(true, std::memory_order_release);
  changed_.notify_all();
  if (listener) listener->ended();
}

}  // namespace gsel::shm
