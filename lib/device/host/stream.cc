// device/host/stream.cc: see stream.h.
#include "device/host/stream.h"

#include "base/error.h"
#include "base/guard.h"
#include "base/options.h"
#include "base/os.h"
#include "base/threads.h"
#include "device/host/table.h"

namespace gsel::host {
namespace {

thread_local const std::atomic<int>* the_waiters = nullptr;

class Waiting {
 public:
  explicit Waiting(std::shared_ptr<std::atomic<int>> waiters) : waiters_(std::move(waiters)) {
    if (waiters_) waiters_->fetch_add(1);
  }
  ~Waiting() {
    if (waiters_) waiters_->fetch_sub(1);
  }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

 private:
  std::shared_ptr<std::atomic<int>> waiters_;
};

}  // namespace

const std::atomic<int>* waiters_of_this_stream() {
  return the_waiters;
}

void EventState::follow(std::shared_ptr<std::atomic<int>> waiters) {
  std::lock_guard lock(mutex_);
  waiters_ = std::move(waiters);
}

uint64_t EventState::start_record() {
  std::lock_guard lock(mutex_);
  return ++recorded_;
}

void EventState::reach(uint64_t record, const std::optional<Error>& failure) {
  std::lock_guard lock(mutex_);
  if (record <= reached_) return;
  reached_ = record;
  time_ns_ = os::now_ns();
  failure_ = failure;
  changed_.notify_all();
}

uint64_t EventState::last_record() const {
  std::lock_guard lock(mutex_);
  return recorded_;
}

bool EventState::is_done() const {
  std::lock_guard lock(mutex_);
  if (reached_ < recorded_) return false;
  if (failure_) throw Error(*failure_);
  return true;
}

void EventState::wait(uint64_t record) const {
  std::unique_lock lock(mutex_);
  const Waiting waiting(reached_ >= record ? nullptr : waiters_);
  changed_.wait(lock, [&] { return reached_ >= record; });
  if (failure_) throw Error(*failure_);
}

int64_t EventState::time_ns() const {
  std::lock_guard lock(mutex_);
  return time_ns_;
}

namespace {

// Threads have no priority, so the flag is ignored.
gsel_status stream_create(void*, uint32_t flags, gsel_stream** out, gsel_error** err) {
  return guard(err, [&] {
    *out = nullptr;
    check_flags(flags, GSEL_STREAM_HIGH_PRIORITY, "flags of a stream");
    *out = new gsel_stream;
  });
}

gsel_status stream_import(void*, void*, gsel_stream** out, gsel_error** err) {
  return guard(err, [&] {
    *out = nullptr;
    fail(GSEL_ERR_UNSUPPORTED, "a stream was to be imported; the host device has streams of its own only");
  });
}

void* stream_native(void*, gsel_stream*) {
  return nullptr;
}

void stream_free(void*, gsel_stream* stream) {
  if (stream && !stream->of_parent()) delete stream;  // else leaked: a thread of the parent may hold its locks
}

gsel_status stream_wait(void*, gsel_stream* stream, gsel_error** err) {
  return guard(err, [&] {
    if (stream) stream->wait();
  });
}

gsel_status event_create(void*, uint32_t flags, gsel_event** out, gsel_error** err) {
  return guard(err, [&] {
    *out = nullptr;
    check_flags(flags, GSEL_EVENT_TIMING, "flags of an event");
    *out = new gsel_event;
  });
}

gsel_status event_import(void*, void*, gsel_event** out, gsel_error** err) {
  return guard(err, [&] {
    *out = nullptr;
    fail(GSEL_ERR_UNSUPPORTED, "an event was to be imported; the host device has events of its own only");
  });
}

void* event_native(void*, gsel_event*) {
  return nullptr;
}

void event_free(void*, gsel_event* event) {
  delete event;
}

gsel_status event_record(void*, gsel_event* event, gsel_stream* stream, gsel_error** err) {
  return guard(err, [&] {
    if (stream)
      stream->record(event->state);
    else
      event->state->reach(event->state->start_record(), {});
  });
}

gsel_status event_wait(void*, gsel_event* event, gsel_error** err) {
  return guard(err, [&] { event->state->wait(event->state->last_record()); });
}

gsel_status event_done(void*, gsel_event* event, int32_t* done, gsel_error** err) {
  return guard(err, [&] {
    *done = 0;
    *done = event->state->is_done();
  });
}

gsel_status stream_wait_event(void*, gsel_stream* stream, gsel_event* event, gsel_error** err) {
  return guard(err, [&] {
    run_on(stream, [state = event->state, record = event->state->last_record()] { state->wait(record); });
  });
}

double event_seconds(void*, gsel_event* a, gsel_event* b) {
  return static_cast<double>(b->state->time_ns() - a->state->time_ns()) * 1e-9;
}

}  // namespace

void add_streams(gsel_device_v1& table) {
  table.stream_create = stream_create;
  table.stream_import = stream_import;
  table.stream_native = stream_native;
  table.stream_free = stream_free;
  table.stream_wait = stream_wait;
  table.event_create = event_create;
  table.event_import = event_import;
  table.event_native = event_native;
  table.event_free = event_free;
  table.event_record = event_record;
  table.event_wait = event_wait;
  table.event_done = event_done;
  table.stream_wait_event = stream_wait_event;
  table.event_seconds = event_seconds;
}

}  // namespace gsel::host

gsel_stream::gsel_stream() {
  try {
    thread_ = gsel::quiet_thread([this] { run_queue(); });
  } catch (const std::system_error& e) {
    gsel::fail(GSEL_ERR_NOMEM, "a stream needs a thread and none could be started: {}",
               gsel::errno_text(e.code().value()));
  }
}

gsel_stream::~gsel_stream() {
  {
    std::lock_guard lock(mutex_);
    closing_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void gsel_stream::enqueue(std::function<void()> work) {
  std::lock_guard lock(mutex_);
  queue_.push_back({std::move(work), nullptr, 0});
  changed_.notify_all();
}

void gsel_stream::record(std::shared_ptr<gsel::host::EventState> event) {
  std::lock_guard lock(mutex_);
  queue_.push_back({{}, std::move(event), 0});  // first, as it may fail: a counted record is always reached
  queue_.back().event->follow(waiters_);
  queue_.back().record = queue_.back().event->start_record();
  changed_.notify_all();
}

void gsel_stream::wait() {
  const gsel::host::Waiting waiting(waiters_);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return queue_.empty() && !busy_; });
  if (failure_) throw gsel::Error(*failure_);
}

void gsel_stream::run_queue() {
  gsel::host::the_waiters = waiters_.get();
  std::unique_lock lock(mutex_);
  for (;;) {
    {
      const gsel::RestingThread resting;
      changed_.wait(lock, [&] { return closing_ || !queue_.empty(); });
    }
    if (queue_.empty()) return;
    const Item item = std::move(queue_.front());
    queue_.pop_front();
    busy_ = true;
    lock.unlock();
    run_item(item);
    lock.lock();
    busy_ = false;
    if (queue_.empty()) changed_.notify_all();
  }
}

// Only this thread writes failure_, under the lock for waiting threads.
void gsel_stream::run_item(const Item& item) {
  if (item.event) {
    item.event->reach(item.record, failure_);
    return;
  }
  if (failure_) return;
  try {
    item.work();
  } catch (...) {
    gsel::Error error = gsel::current_error();
    std::lock_guard lock(mutex_);
    failure_ = std::move(error);
  }
}
