// comm/hosts/started.cc: requests for messages: how callers wait, poll and cancel; see messages.h.
#include <utility>

#include "base/os.h"
#include "comm/hosts/messages.h"
#include "comm/hosts/pause.h"

namespace gsel::hosts {

Messages::Started::Started(std::shared_ptr<Messages> messages, std::span<const gsel_collective> calls,
                           int64_t timeout_ns, bool is_blocking)
    : messages_(std::move(messages)),
      calls_(calls.begin(), calls.end()),
      timeout_ns_(timeout_ns),
      is_blocking_(is_blocking) {
  try {
    messages_->begin(*this);
  } catch (...) {
    messages_->give_up(*this);
    throw;
  }
}

Messages::Started::~Started() {
  if (os::fork_generation() == fork_generation_) messages_->give_up(*this);
}

bool Messages::Started::waits_for_itself() const {
  if (os::fork_generation() != fork_generation_) return false;  // the lock may be held by a thread of the parent
  const std::lock_guard lock(messages_->mutex_);
  return !done_ && !messages_->is_closed_ && messages_->rank_.in_operation();
}

bool Messages::Started::tell(const std::shared_ptr<gsel::Listener>& listener) {
  require_own_process(fork_generation_, "request");
  const std::lock_guard lock(messages_->mutex_);
  if (done_) {
    listener->ended();
    return true;
  }
  listener_ = listener;
  if (since_ns_ == 0) since_ns_ = os::now_ns();
  return true;
}

// A message sent to another host cannot be cancelled.
bool Messages::Started::cancel() {
  require_own_process(fork_generation_, "request");
  const std::lock_guard lock(messages_->mutex_);
  if (done_ || halves_.size() != 1) return false;
  Half& half = halves_.front();
  if (half.is_met || half.out || (half.local && !half.local->cancel())) return false;
  half.local.reset();
  messages_->end(*this, nullptr);
  return true;
}

// wait() would start the timeout after which an unmatched message breaks the communicator.
void Messages::Started::wait_or_cancel() {
  require_own_process(fork_generation_, "request");
  if (calls_.size() == 1) {
    const double own = calls_.front().timeout_s;
    const int64_t end = os::now_ns() + (own > 0 ? static_cast<int64_t>(own * 1e9) : timeout_ns_);
    for (const Pause pause; os::now_ns() < end; pause.make())
      if (messages_->go_on(*this, false)) return;
    if (cancel()) return;
  }
  wait(-1);
}

void Messages::run(std::span<const gsel_collective> calls, int64_t timeout_ns) {
  Started(shared_from_this(), calls, timeout_ns, true).wait(-1);
}

std::unique_ptr<BackendRequest> Messages::start(std::span<const gsel_collective> calls, int64_t timeout_ns) {
  {
    const std::lock_guard lock(mutex_);
    make_thread();
  }
  auto started = std::make_unique<Started>(shared_from_this(), calls, timeout_ns, false);
  const std::lock_guard lock(mutex_);
  take_frames();
  match();
  progress(*started);
  if (!started->done_) wake_thread();
  return started;
}

// While a caller waits, the thread does not advance messages.
class Messages::Driving {
 public:
  explicit Driving(Messages& messages) : messages_(messages) {
    const std::lock_guard lock(messages_.mutex_);
    ++messages_.drivers_;
  }
  ~Driving() {
    const std::lock_guard lock(messages_.mutex_);
    --messages_.drivers_;
  }
  Driving(const Driving&) = delete;
  Driving& operator=(const Driving&) = delete;

 private:
  Messages& messages_;
};

bool Messages::Started::wait(double seconds) {
  require_own_process(fork_generation_, "request");
  const int64_t began = os::now_ns();
  if (seconds == 0) {
    if (!messages_->go_on(*this, true)) return false;
  } else {
    const Driving driving(*messages_);
    {
      const std::lock_guard lock(messages_->mutex_);
      if (since_ns_ == 0) since_ns_ = began;
    }
    const Pause pause;
    while (!messages_->go_on(*this, false)) {
      if (seconds >= 0 && static_cast<double>(os::now_ns() - began) >= seconds * 1e9) return false;
      pause.make();
    }
  }
  if (!failure_) return true;
  messages_->await_notified();
  throw Error(*failure_);
}

}  // namespace gsel::hosts
