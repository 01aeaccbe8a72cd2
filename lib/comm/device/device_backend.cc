// comm/device/device_backend.cc: see device_backend.h.
#include "comm/device/device_backend.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "base/current_error.h"
#include "base/forked.h"
#include "base/log.h"
#include "base/quiet_thread.h"
#include "comm/check.h"
#include "comm/collective.h"

namespace gsel {
namespace {

constexpr int64_t kLookNs = 50'000'000;  // for what nobody is woken for: late ranks, errors of the transport
constexpr int64_t kCauseNs =
    1'000'000'000;  // for the control to hear of the death that a transport's error follows from
constexpr int64_t kDrainNs = 5'000'000'000;
constexpr int kYields = 200;
constexpr useconds_t kSleepUs = 20;

// One thread at a time, also where it runs a request: what is enqueued has one order.
class InCall {
 public:
  InCall(std::atomic_flag& flag, const gsel_collective& call) : flag_(flag) {
    if (flag.test_and_set(std::memory_order_acquire))
      fail(GSEL_ERR_STATE,
           "{}: another thread is in a call; with an accelerator, one thread at a time makes calls and runs requests",
           collective_name(call.kind));
  }
  ~InCall() { flag_.clear(std::memory_order_release); }
  InCall(const InCall&) = delete;
  InCall& operator=(const InCall&) = delete;

 private:
  std::atomic_flag& flag_;
};

std::string text_of(const gsel_collective& call) {
  return describe(call.kind, call.dtype, call.op, call.root, call.count, {}, call.tag);
}

}  // namespace

DeviceBackend::DeviceBackend(std::shared_ptr<const Accelerator> accelerator, Control& control, const Options& options)
    : accelerator_(std::move(accelerator)),
      control_(control),
      flags_(options.flags),
      timeout_s_(options.timeout_s),
      agreement_(agree_on_transport(*accelerator_, control, options.flags)),
      clock_(accelerator_->device),
      host_(accelerator_->device, [this](Event& event) { wait(event, -1); }),
      reached_(accelerator_->device) {
  if (agreement_.through_host) return;
  try {
    link_ = TransportLink::join(accelerator_, control, options.timeout_s, options.join_timeout_s, options.flags);
  } catch (...) {  // the others wait for this rank inside of the transport
    control_.abort(current_error().what());
    throw;
  }
  if ((flags_ & GSEL_COMM_NO_THREAD) == 0) watching_ = quiet_thread([this] { watch(); });
}

// Work on a broken link is ended first, or it would wait for ever.
DeviceBackend::~DeviceBackend() {
  leaving_ = true;
  control_.stop_awaiting_break();
  if (watching_.joinable()) watching_.join();
  if (link_) {
    for (const auto& [memory, window] : windows_)
      if (!control_.is_broken()) link_->table().window_release(link_->get(), window);
    if (control_.is_broken()) link_->abort();
    if (link_->detach() && control_.is_broken()) drain();
  }
  accelerator_->device->table().stream_free(accelerator_->device->ctx(), stream_);
}

// Behind an abort the stream still holds what it has not reached, which ends as soon as it begins: until then its
// memory is in use.
void DeviceBackend::drain() noexcept {
  const int64_t end = os::now_ns() + kDrainNs;
  try {
    reached_.record(stream_);
    for (int32_t done = 0; !done && os::now_ns() < end; usleep(kSleepUs))
      accelerator_->device->run(&gsel_device_v1::event_done, reached_.get(), &done);
  } catch (...) {  // the device has failed, and its work with it
  }
}

// ---- what goes wrong later ----------------------------------------------------------------------------------------

// A rank that has died is the cause of much that a transport then reports: who died is told, and not what followed.
void DeviceBackend::look_for_failures() {
  control_.look_after_announced();
  if (const auto late = clock_.late()) control_.break_with(*late);
  try {
    link_->throw_error();
  } catch (const Error& error) {
    if (error.code() == GSEL_ERR_PEER) control_.await_break(kCauseNs);
    if (!control_.is_broken()) control_.break_with(error);
  }
}

void DeviceBackend::watch() {
  while (!leaving_ && !control_.await_break(kLookNs)) try {
      look_for_failures();
    } catch (...) {
      control_.break_with(current_error());
    }
  if (!leaving_) link_->abort();
}

void DeviceBackend::throw_async_error() {
  require("gsel_comm_get_async_error");
  if (link_ && !watching_.joinable()) {
    if (!control_.is_broken()) look_for_failures();
    if (control_.is_broken()) link_->abort();
  }
  control_.throw_what_broke();
}

void DeviceBackend::synchronize() {
  require("gsel_comm_synchronize");
  throw_async_error();
  reached_.record(stream_);
  wait(reached_, -1);
}

bool DeviceBackend::wait(Event& reached, double seconds) {
  const int64_t end = seconds < 0 ? INT64_MAX : os::now_ns() + static_cast<int64_t>(seconds * 1e9);
  for (int looks = 0;; ++looks) {
    throw_async_error();
    int32_t done = 0;
    accelerator_->device->run(&gsel_device_v1::event_done, reached.get(), &done);
    if (done) {
      throw_async_error();  // what ended the stream's work
      return true;
    }
    if (os::now_ns() >= end) return false;
    looks < kYields ? static_cast<void>(sched_yield()) : static_cast<void>(usleep(kSleepUs));
  }
}

// ---- calls --------------------------------------------------------------------------------------------------------

void DeviceBackend::set_stream(void* native) {
  require("gsel_comm_set_stream");
  gsel_stream* stream = nullptr;
  if (native) accelerator_->device->run(&gsel_device_v1::stream_import, native, &stream);
  accelerator_->device->table().stream_free(accelerator_->device->ctx(), std::exchange(stream_, stream));
}

void DeviceBackend::check(const gsel_collective& call) {
  const BufferBytes bytes = buffer_bytes(call, control_.rank(), control_.world_size());
  const char* name = collective_name(call.kind);
  check_device_memory(*accelerator_, name, call.send, bytes.send, "send");
  check_device_memory(*accelerator_, name, call.recv, bytes.recv, "recv");
  if (!link_) return;
  if (is_point_to_point(call.kind)) refuse_message_of_host(call);
  if ((flags_ & GSEL_COMM_NOT_THROUGH_HOST) == 0) return;
  std::string why;
  if (!link_->supports(call, &why))
    fail(GSEL_ERR_UNSUPPORTED,
         "{}: the transport {} does not make it ({}), and the communicator was made with GSEL_COMM_NOT_THROUGH_HOST",
         name, accelerator_->transport_name, why);
}

bool DeviceBackend::supports(const gsel_collective& call) const {
  return link_ && link_->supports(call);
}

// The other side cannot know which way a message goes, so all messages go one way.
void DeviceBackend::refuse_message_of_host(const gsel_collective& call) const {
  if (link_->supports(call)) return;
  fail(GSEL_ERR_UNSUPPORTED,
       "{}: the transport {} has no tags, no probes and no receive from any rank; name the rank and use tag 0, or join "
       "with the transport \"host\"",
       collective_name(call.kind), accelerator_->transport_name);
}

void DeviceBackend::warn_of_host(const gsel_collective& call) {
  if (!link_ || std::exchange(warned_of_host_, true)) return;
  std::string why;
  link_->supports(call, &why);
  log(GSEL_LOG_WARN, "comm", "{} of communicator {} goes through host memory, since {} does not make it: {}",
      text_of(call), control_.name(), accelerator_->transport_name, why);
}

// With a transport, the other ranks could take the call for one that goes over it, hence the announcement.
StagedCalls DeviceBackend::stage(std::span<const gsel_collective> checked) {
  for (const gsel_collective& call : checked) {
    warn_of_host(call);
    if (link_ && !is_point_to_point(call.kind)) control_.announce(call);
  }
  return host_.stage(checked, control_.rank(), control_.world_size(), stream_);
}

void DeviceBackend::run(const gsel_collective& call, gsel_stream*) {
  require(collective_name(call.kind));
  const InCall in_call(in_call_, call);
  check(call);
  if (supports(call)) {
    const Enqueued one{this, call};
    return enqueue({&one, 1});
  }
  StagedCalls staged = stage({&call, 1});
  control_.host().run(staged.calls[0], nullptr);
  fetch(std::move(staged));
}

void DeviceBackend::group(std::span<const gsel_collective> calls) {
  for (const gsel_collective& call : calls) run(call, nullptr);
}

namespace {

// A call that has been enqueued.
class PassedBy : public Pending {
 public:
  PassedBy(DeviceBackend& backend, gsel_stream* stream) : backend_(backend), reached_(backend.accelerator()->device) {
    reached_.record(stream);
  }
  bool wait(double seconds) override { return backend_.wait(reached_, seconds); }

 private:
  DeviceBackend& backend_;
  Event reached_;
};

// A call that the host makes: fetched by whoever finds that it has ended.
class Staged : public Pending {
 public:
  Staged(DeviceBackend& backend, gsel_stream* stream, StagedCalls staged, std::unique_ptr<Pending> calls)
      : backend_(backend), stream_(stream), staged_(std::move(staged)), calls_(std::move(calls)) {}
  bool wait(double seconds) override {
    if (calls_ && !calls_->wait(seconds)) return false;
    if (calls_) {
      calls_.reset();
      backend_.fetch(std::move(staged_));
      passed_ = std::make_unique<PassedBy>(backend_, stream_);
    }
    return passed_->wait(seconds);
  }
  bool cancel() override { return calls_ && calls_->cancel(); }
  void wait_or_cancel() override {
    if (calls_) calls_->wait_or_cancel();
  }

 private:
  DeviceBackend& backend_;
  gsel_stream* stream_;
  StagedCalls staged_;
  std::unique_ptr<Pending> calls_, passed_;
};

}  // namespace

std::unique_ptr<Pending> DeviceBackend::start(std::span<const gsel_collective> calls) {
  require("request");
  const gsel_collective& call = calls.front();
  const InCall in_call(in_call_, call);
  check(call);
  if (supports(call)) {
    const Enqueued one{this, call};
    enqueue({&one, 1});
    return std::make_unique<PassedBy>(*this, stream_);
  }
  StagedCalls staged = stage(calls);
  auto started = control_.host().start(staged.calls);
  return std::make_unique<Staged>(*this, stream_, std::move(staged), std::move(started));
}

// The first call of each communicator, then the second, ...: ranks that this thread holds do not wait for one another.
// Where one fails, those that have announced theirs do not make it.
void DeviceBackend::announce(std::span<const Enqueued> calls) {
  std::map<const DeviceBackend*, size_t> seen;
  std::multimap<size_t, const Enqueued*> order;
  for (const Enqueued& c : calls) order.emplace(seen[c.backend]++, &c);
  for (auto at = order.begin(); at != order.end(); ++at) try {
      at->second->backend->control_.announce(at->second->call);
    } catch (...) {
      const Error error = current_error();
      for (auto made = order.begin(); made != at; ++made) made->second->backend->control_.break_with(error);
      throw;
    }
}

void DeviceBackend::enqueue(std::span<const Enqueued> calls) {
  if (calls.size() == 1)
    calls[0].backend->control_.announce(calls[0].call);
  else
    announce(calls);
  const gsel_transport_v2* table = &calls[0].backend->link_->table();
  if (std::ranges::all_of(calls, [&](const Enqueued& c) { return &c.backend->link_->table() == table; }))
    return enqueue_together(calls);
  for (const Enqueued& c : calls) enqueue_together({&c, 1});
}

// Over one transport.
void DeviceBackend::enqueue_together(std::span<const Enqueued> calls) {
  std::vector<gsel_enqueued> all;
  double timeout_s = 0;
  for (const Enqueued& c : calls) {
    const double own = c.call.timeout_s > 0 ? c.call.timeout_s : c.backend->timeout_s_.load();
    timeout_s = std::max(timeout_s, own);
    all.push_back({c.backend->link_->get(), &c.call, c.backend->stream_});
  }
  DeviceBackend& first = *calls[0].backend;
  first.clock_.begin(first.stream_);
  gsel_error* err = nullptr;
  const gsel_status status = first.link_->table().enqueue(all.data(), all.size(), timeout_s, &err);
  try {
    throw_if_failed(status, err);
  } catch (...) {  // the other ranks have this call or wait for it
    const Error error = current_error();
    first.clock_.drop();
    if (error.code() == GSEL_ERR_PEER) first.control_.await_break(kCauseNs);
    for (const Enqueued& c : calls) c.backend->control_.throw_what_broke();
    for (const Enqueued& c : calls) c.backend->control_.break_with(error);
    throw;
  }
  first.clock_.end(first.stream_,
                   calls.size() == 1 ? text_of(calls[0].call) : text_of(calls[0].call) + " and the calls of its group",
                   timeout_s);
  for (const Enqueued& c : calls) describe_received(c.call);
}

// As the call says, since the transport has no messages of another length.
void DeviceBackend::describe_received(const gsel_collective& call) {
  if (!call.received) return;
  const bool both = call.kind == GSEL_COLLECTIVE_SENDRECV;
  gsel_message& message = *call.received;
  message.source = both ? call.source : call.root;
  message.tag = 0;
  message.dtype = call.dtype;
  message.count = both ? call.recv_count : call.count;
}

gsel_comm_explanation DeviceBackend::explain(const gsel_collective& call) {
  require("gsel_comm_explain");
  gsel_comm_explanation out = control_.host().explain(call);
  out.transport = "host";
  out.transport_reason = agreement_.reason.c_str();
  if (!link_) return out;
  if (supports(call)) {
    out.transport = accelerator_->transport_name.c_str();
    out.protocol = "stream";
    out.reason = "the transport enqueues it";
    out.chunk_bytes = 0;
    out.seconds = 0;
  } else {
    out.transport_reason = "the transport has no such call, type or operation";
  }
  return out;
}

// ---- memory -------------------------------------------------------------------------------------------------------

void* DeviceBackend::alloc(uint64_t bytes) {
  require("gsel_mem_alloc");
  return accelerator_->memory->alloc(bytes, link_ ? accelerator_->transport : nullptr);
}

void DeviceBackend::free(void* memory) {
  require("gsel_mem_free");
  accelerator_->memory->free(memory);
}

// With a transport all ranks register together: libraries do not say what they do where only some have.
void DeviceBackend::register_memory(void* memory, uint64_t bytes) {
  require("gsel_mem_register");
  check_device_memory(*accelerator_, "gsel_mem_register", memory, bytes, "memory");
  if (!link_ || !link_->table().window_register) return;
  std::vector<uint64_t> all(static_cast<size_t>(control_.world_size()));
  control_.exchange(&bytes, all.data(), sizeof bytes, "register memory");
  for (size_t q = 0; q < all.size(); ++q)
    if (all[q] != all[0])
      throw Error(
          GSEL_ERR_MISMATCH,
          fmt::format("gsel_mem_register: {} registers {} bytes, {} registers {}; register as many on every rank",
                      control_.named(static_cast<int32_t>(q)), all[q], control_.named(0), all[0]))
          .about_rank(control_.shown(static_cast<int32_t>(q)));
  gsel_window* window = nullptr;
  gsel_error* err = nullptr;
  const gsel_status status = link_->table().window_register(link_->get(), memory, bytes, &window, &err);
  throw_if_failed(status, err);
  windows_[memory] = window;
}

void DeviceBackend::unregister_memory(void* memory) {
  require("gsel_mem_unregister");
  const auto found = windows_.find(memory);
  if (found == windows_.end()) return;
  if (!control_.is_broken()) link_->table().window_release(link_->get(), found->second);
  windows_.erase(found);
}

}  // namespace gsel
