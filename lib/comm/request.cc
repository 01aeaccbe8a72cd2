// comm/request.cc: see request.h.
#include "comm/request.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/os.h"
#include "base/text.h"
#include "comm/call/collective.h"

namespace gsel {
namespace {

constexpr int64_t kYieldNs = 50'000;
constexpr double kFirstSleep = 50e-6, kLongestSleep = 1e-3, kMoment = 1e-9;

}  // namespace

CallRequest::CallRequest(Communicator& communicator, std::vector<gsel_collective> calls, Use use)
    : communicator_(communicator), calls_(std::move(calls)), use_(use) {
  require_own_process(fork_generation_, "request");
  labels_.reserve(calls_.size());
  for (size_t i = 0; i < calls_.size(); ++i) try {
      gsel_collective& call = calls_[i];
      communicator.check(call);
      labels_.emplace_back(view(call.label));
      if (given(call.label)) call.label = borrow(labels_.back());
    } catch (const Error& e) {
      if (calls_.size() == 1) throw;
      throw Error(e.code(), fmt::format("call {} of a group of {}: {}", i, calls_.size(), e.message()));
    }
  if (use == Use::persistent) communicator.allow_overlap();
}

CallRequest::CallRequest(Communicator& communicator, Making making)
    : communicator_(communicator), use_(Use::started), making_(std::move(making)) {
  require_own_process(fork_generation_, "request");
}

const char* CallRequest::name() const {
  if (making_) return "the making of a communicator";
  return calls_.size() == 1 ? collective_name(calls_.front().kind) : "a group of calls";
}

CallRequest::~CallRequest() {
  forget();
  try {
    if (backend_request_) backend_request_->wait_or_cancel();
  } catch (...) {  // in a forked child: nothing to wait for
  }
}

void CallRequest::require_ended() {
  if (backend_request_ && !look(0))
    fail(GSEL_ERR_STATE, "{} is under way already; wait for it before it is started again", name());
}

void CallRequest::start() {
  require_ended();
  failure_.reset();
  if (making_) {
    made_ = std::make_shared<std::optional<Communicator>>();
    backend_request_ = communicator_.start_making(*making_, made_);
  } else {
    backend_request_ = communicator_.start(calls_);
  }
  reported_ = false;
  if (ticket_) tell();
}

void CallRequest::run() {
  require_ended();
  if (use_ == Use::started)
    fail(GSEL_ERR_STATE, "{} was started by gsel_comm_start; gsel_request_run takes a request of gsel_request_create",
         name());
  failure_.reset();
  reported_ = true;
  try {
    communicator_.run_checked(calls_.front());
  } catch (const Error& e) {
    failure_ = e;
    throw;
  }
}

// Waits at most `seconds` and returns whether the request has ended; stores its failure. One thread at a time waits on
// the backend, the others wait for that thread.
bool CallRequest::look(double seconds) {
  const int64_t end = seconds < 0 ? INT64_MAX : os::now_ns() + static_cast<int64_t>(seconds * 1e9);
  std::unique_lock lock(mutex_);
  if (seconds != 0 && backend_request_ && backend_request_->waits_for_itself())
    fail(GSEL_ERR_STATE, "{} is waited for in an operation that runs before its end; wait after the operation returns",
         name());
  while (is_looked_at_) {
    const int64_t rest = end - os::now_ns();
    if (rest <= 0) return false;
    seconds < 0 ? looked_.wait(lock) : static_cast<void>(looked_.wait_for(lock, std::chrono::nanoseconds(rest)));
  }
  if (!backend_request_) return true;
  is_looked_at_ = true;
  lock.unlock();
  const bool has_ended =
      look_alone(seconds <= 0 ? seconds : std::max(static_cast<double>(end - os::now_ns()) * 1e-9, kMoment));
  lock.lock();
  if (has_ended) backend_request_.reset();
  is_looked_at_ = false;
  looked_.notify_all();
  return has_ended;
}

bool CallRequest::look_alone(double seconds) {
  try {
    return backend_request_->wait(seconds);
  } catch (const Error& e) {
    failure_ = e;
    return true;
  }
}

void CallRequest::report() {
  reported_ = true;
  if (failure_) throw Error(*failure_);
}

void CallRequest::test(int32_t* done) {
  *done = 1;
  require_own_process(fork_generation_, "request");
  *done = look(0);
  if (*done) report();
}

void CallRequest::wait() {
  require_own_process(fork_generation_, "request");
  look(-1);
  report();
}

bool CallRequest::wait_for(double seconds) {
  require_own_process(fork_generation_, "request");
  if (!look(seconds)) return false;
  report();
  return true;
}

bool CallRequest::waits_for_itself() {
  const std::lock_guard lock(mutex_);
  return backend_request_ && backend_request_->waits_for_itself();
}

bool CallRequest::has_ended() noexcept {
  return !waits_for_itself() && look(kMoment);
}

void CallRequest::notify(const std::shared_ptr<CompletionQueue>& queue, void* user) {
  require_own_process(fork_generation_, "request");
  if (queue) require_own_process(queue->fork_generation(), "gsel_request_notify");
  forget();
  queue_ = queue;
  ticket_ = queue ? std::make_shared<CompletionQueue::Ticket>(queue, user) : nullptr;
  if (queue && !reported_) tell();
}

// Notifies the queue of the end of a request that is under way or has ended unreported.
void CallRequest::tell() {
  if (look(0))
    ticket_->ended();
  else if (!backend_request_->tell(ticket_))
    queue_->poll(*this, *ticket_);
}

void CallRequest::forget() noexcept {
  if (ticket_) queue_->forget(*this, *ticket_);
}

void* CallRequest::event() {
  require_own_process(fork_generation_, "request");
  const std::lock_guard lock(mutex_);
  if (!backend_request_) fail(GSEL_ERR_STATE, "gsel_request_event: {} is not under way; start it first", name());
  void* event = backend_request_->event();
  if (!event)
    fail(GSEL_ERR_UNSUPPORTED,
         "gsel_request_event: {} is made by the host and no stream passes it; gsel_request_wait waits for it", name());
  return event;
}

std::optional<Communicator> CallRequest::take() {
  require_own_process(fork_generation_, "request");
  if (!making_)
    fail(GSEL_ERR_ARG, "gsel_request_take_comm: {} makes no communicator; gsel_comm_start_split and its like do",
         name());
  if (!look(0)) fail(GSEL_ERR_STATE, "gsel_request_take_comm: {} is under way; wait for it first", name());
  report();
  return made_ ? std::exchange(*made_, std::nullopt) : std::nullopt;
}

bool CallRequest::cancel() {
  require_own_process(fork_generation_, "request");
  std::unique_lock lock(mutex_);
  if (!backend_request_ || !backend_request_->cancel()) return false;
  looked_.wait(lock, [this] { return !is_looked_at_; });  // a completion queue's thread may just look at it
  backend_request_.reset();
  reported_ = true;
  return true;
}

// Polls all requests in turn, then waits on one after the other, with growing times. Before that it waits for a moment
// on each, so that the timeout of each starts.
void CallRequest::wait_any(std::span<CallRequest* const> requests, size_t* index) {
  const auto is_open = [](const CallRequest* r) { return r && !r->reported_; };
  if (std::ranges::none_of(requests, is_open))
    fail(GSEL_ERR_ARG, "wait_any: none of {} is under way or ended without being reported",
         with_noun(requests.size(), "request"));
  const int64_t started = os::now_ns();
  double sleep = kFirstSleep;
  bool waited = false;
  for (size_t turn = 0;; ++turn) {
    for (size_t i = 0; i < requests.size(); ++i) {
      if (!is_open(requests[i]) || !requests[i]->look(0)) continue;
      *index = i;
      return requests[i]->report();
    }
    if (os::now_ns() - started < kYieldNs) {
      sched_yield();
      continue;
    }
    if (!std::exchange(waited, true)) {
      for (CallRequest* request : requests)
        if (is_open(request)) request->look(kMoment);
      continue;
    }
    size_t one = turn % requests.size();
    while (!is_open(requests[one])) one = (one + 1) % requests.size();
    requests[one]->look(sleep);
    sleep = std::min(2 * sleep, kLongestSleep);
  }
}

}  // namespace gsel
