// comm/device/device_calls.cc: how a device backend makes calls; see device_backend.h.
#include <algorithm>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "comm/call/check.h"
#include "comm/call/collective.h"
#include "comm/device/device_backend.h"
#include "comm/device/in_call.h"

namespace gsel {
namespace {

std::string text_of(const gsel_collective& call) {
  return describe(call.kind, call.dtype, call.op, call.root, call.count, {}, call.tag);
}

}  // namespace

void DeviceBackend::check(const gsel_collective& call) {
  const BufferBytes bytes = buffer_bytes(call, control_.rank(), control_.world_size());
  const char* name = collective_name(call.kind);
  check_device_memory(*accelerator_, agreement_.reached_by, name, call.send, bytes.send, "send");
  check_device_memory(*accelerator_, agreement_.reached_by, name, call.recv, bytes.recv, "recv");
  if (!link_) return;
  if (is_point_to_point(call.kind)) refuse_message_of_host(call);
  if ((flags_ & GSEL_COMM_NOT_THROUGH_HOST) == 0) return;
  std::string why;
  if (!link_->supports(call, &why))
    fail(GSEL_ERR_UNSUPPORTED,
         "{}: the transport {} does not make it ({}), and the communicator was made with GSEL_COMM_NOT_THROUGH_HOST",
         name, agreement_.transport->name, why);
}

bool DeviceBackend::supports(const gsel_collective& call) const {
  return link_ && link_->supports(call);
}

// The peer cannot know which way a message goes, so no message goes through the host.
void DeviceBackend::refuse_message_of_host(const gsel_collective& call) const {
  if (link_->supports(call)) return;
  fail(GSEL_ERR_UNSUPPORTED,
       "{}: the transport {} has no tags, no probes and no receive from any rank; name the rank and use tag 0, or join "
       "with the transport \"host\"",
       collective_name(call.kind), agreement_.transport->name);
}

void DeviceBackend::warn_of_host(const gsel_collective& call) {
  if (!link_ || std::exchange(warned_of_host_, true)) return;
  std::string why;
  link_->supports(call, &why);
  log(GSEL_LOG_WARN, "comm", "{} of communicator {} goes through host memory, since {} does not make it: {}",
      text_of(call), control_.name(), agreement_.transport->name, why);
}

// 0: not in registered memory.
uint64_t DeviceBackend::place_of(const void* memory, uint64_t bytes) const {
  auto window = windows_.upper_bound(memory);
  if (window == windows_.begin()) return 0;
  --window;
  const auto from = static_cast<uint64_t>(static_cast<const char*>(memory) - static_cast<const char*>(window->first));
  return from + bytes <= window->second.bytes ? window->second.number << 48 ^ (from + 1) : 0;
}

// Whether all buffers of a call are in registered memory, which a transport may access in place; all ranks must agree.
// Not for messages and the v kinds, whose buffers may be empty on some ranks. A rank may compute where the buffers of
// others are from its own: send of a reduction, recv where every rank gets the whole.
RegisteredPlace DeviceBackend::place_of(const gsel_collective& call) const {
  const CollectiveRow& row = row_of(call.kind);
  if (windows_.empty() || row.message || row.counted()) return {};
  const BufferBytes bytes = buffer_bytes(call, control_.rank(), control_.world_size());
  const uint64_t send = bytes.send ? place_of(call.send, bytes.send) : 0,
                 recv = bytes.recv ? place_of(call.recv, bytes.recv) : 0;
  if (bytes.send + bytes.recv == 0 || (bytes.send && !send) || (bytes.recv && !recv)) return {};
  constexpr uint64_t kSpread = 0x9e3779b97f4a7c15u;
  if (call.kind == GSEL_COLLECTIVE_ALLREDUCE) return {true, send * kSpread ^ recv};
  if (call.kind == GSEL_COLLECTIVE_REDUCE_SCATTER) return {true, send};
  if (call.kind == GSEL_COLLECTIVE_ALLGATHER) return {true, recv};
  return {true, 0};
}

void DeviceBackend::announce(const gsel_collective& call) const {
  control_.announce(call, place_of(call));
}

// Announces the calls, since another rank could make a call over the transport at this point.
StagedCalls DeviceBackend::stage(std::span<const ThroughHost::Call> checked) {
  for (const ThroughHost::Call& call : checked) {
    warn_of_host(call.checked);
    if (link_ && !is_point_to_point(call.checked.kind)) control_.announce(call.checked);
  }
  return host_.stage(checked, control_.rank(), control_.world_size());
}

// If the device does not go on, no rank may come to the call, so that nobody would be late.
void DeviceBackend::wait_before(const gsel_collective& call, Event& reached) {
  if (wait(reached, observer_ ? -1 : timeout_s(call), observer_)) return;
  const Error error(
      GSEL_ERR_TIMEOUT,
      fmt::format("timed out: {} of {} did not begin within {}, since what its stream has to do "
                  "before it on {} has not ended",
                  text_of(call), control_.named(control_.rank()), seconds_text(timeout_s(call)), accelerator_->name));
  control_.break_with(error);
  control_.throw_break_reason();
}

// `given`: a stream of the library, used instead of the caller's; not owned.
CallStream DeviceBackend::stream_of(const gsel_collective& call, gsel_stream* given) const {
  return given ? CallStream(given, [](gsel_stream*) {}) : stream_of(call);
}

void DeviceBackend::run(const gsel_collective& call, gsel_stream* given) {
  require(collective_name(call.kind));
  const InCall in_call(in_call_, collective_name(call.kind));
  check(call);
  CallStream stream = stream_of(call, given);
  if (supports(call)) {
    const Enqueued one{this, call, std::move(stream)};
    return enqueue_in_order({&one, 1}, given);
  }
  const ThroughHost::Call one{call, std::move(stream)};
  StagedCalls staged = stage({&one, 1});
  control_.host().run(staged.calls[0], nullptr);
  fetch(std::move(staged));
}

void DeviceBackend::run_together(std::span<const gsel_collective> calls, gsel_stream* stream) {
  const bool is_one_by_one =
      std::ranges::any_of(calls, [this](const gsel_collective& call) { return !supports(call); });
  if (is_one_by_one || calls.size() == 1) {
    for (const gsel_collective& call : calls) run(call, stream);
    return;
  }
  require("a group");
  const InCall in_call(in_call_, collective_name(calls.front().kind));
  std::vector<Enqueued> together;
  for (const gsel_collective& call : calls) {
    check(call);
    together.push_back({this, call, stream_of(call, stream)});
  }
  enqueue_in_order(together, stream);
}

void DeviceBackend::enqueue_in_order(std::span<const Enqueued> calls, gsel_stream* stream) const {
  LaunchOrder* const order = stream && agreement_.transport ? agreement_.transport->order.get() : nullptr;
  if (order) order->begin(stream);
  enqueue(calls);
  if (order) order->end(stream);
}

std::string DeviceBackend::why_not_captured() const {
  if (!link_) return "calls go through host memory: " + reasons_.back();
  if ((agreement_.transport->can.flags & GSEL_TRANSPORT_CAPTURE) == 0)
    return fmt::format("calls of the transport {} are not captured", agreement_.transport->name);
  if (agreement_.transport->order)
    return fmt::format("calls of several communicators are ordered by events, since {} does not: {}",
                       agreement_.transport->name, reasons_.back());
  return "";
}

void DeviceBackend::group(std::span<const gsel_collective> calls) {
  for (const gsel_collective& call : calls) run(call, nullptr);
}

namespace {

// A call that has been enqueued.
class PassedBy : public BackendRequest {
 public:
  PassedBy(DeviceBackend& backend, gsel_stream* stream) : backend_(backend), reached_(backend.accelerator()->device) {
    reached_.record(stream);
  }
  bool wait(double seconds) override { return backend_.wait(reached_, seconds); }
  void* event() override {
    const DeviceContext& device = *backend_.accelerator()->device;
    return device.table().event_native(device.ctx(), reached_.get());
  }

 private:
  DeviceBackend& backend_;
  Event reached_;
};

// A call that the host backend makes; the wait that sees its end fetches the result.
class Staged : public BackendRequest {
 public:
  Staged(DeviceBackend& backend, CallStream stream, StagedCalls staged, std::unique_ptr<BackendRequest> calls)
      : backend_(backend), stream_(std::move(stream)), staged_(std::move(staged)), calls_(std::move(calls)) {}
  bool wait(double seconds) override {
    if (calls_ && !calls_->wait(seconds)) return false;
    if (calls_) {
      calls_.reset();
      backend_.fetch(std::move(staged_));
      passed_ = std::make_unique<PassedBy>(backend_, stream_.get());
    }
    return passed_->wait(seconds);
  }
  bool waits_for_itself() const override { return calls_ && calls_->waits_for_itself(); }
  bool cancel() override { return calls_ && calls_->cancel(); }
  void wait_or_cancel() override {
    if (calls_) calls_->wait_or_cancel();
  }

 private:
  DeviceBackend& backend_;
  CallStream stream_;
  StagedCalls staged_;
  std::unique_ptr<BackendRequest> calls_, passed_;
};

}  // namespace

// All calls are on one stream, so one event marks their end.
std::unique_ptr<BackendRequest> DeviceBackend::start(std::span<const gsel_collective> calls, bool) {
  require("request");
  const InCall in_call(in_call_, collective_name(calls.front().kind));
  CallStream stream = stream_of(calls.front());
  std::vector<Enqueued> enqueued;
  for (const gsel_collective& call : calls) {
    check(call);
    if (call.stream != calls.front().stream)
      fail(GSEL_ERR_UNSUPPORTED, "{}: the calls of a group that is started have one stream",
           collective_name(call.kind));
    enqueued.push_back({this, call, stream});
  }
  if (std::ranges::all_of(calls, [this](const gsel_collective& call) { return supports(call); })) {
    enqueue(enqueued);
    return std::make_unique<PassedBy>(*this, stream.get());
  }
  if (calls.size() > 1)  // a call may send what an earlier call receives
    fail(GSEL_ERR_UNSUPPORTED,
         "a group of {} calls that goes through host memory is not started; gsel_group_run makes it", calls.size());
  const ThroughHost::Call one{calls.front(), stream};
  StagedCalls staged = stage({&one, 1});
  auto started = control_.host().start(staged.calls, true);
  return std::make_unique<Staged>(*this, std::move(stream), std::move(staged), std::move(started));
}

// Announces the first call of each communicator, then the second, ..., so that several ranks of this thread do not wait
// for each other. If one fails, breaks the communicators that have announced a call, since it will not be made.
void DeviceBackend::announce(std::span<const Enqueued> calls) {
  std::map<const DeviceBackend*, size_t> seen;
  std::multimap<size_t, const Enqueued*> order;
  for (const Enqueued& c : calls) order.emplace(seen[c.backend]++, &c);
  for (auto at = order.begin(); at != order.end(); ++at) try {
      at->second->backend->announce(at->second->call);
    } catch (...) {
      const Error error = current_error();
      for (auto made = order.begin(); made != at; ++made) made->second->backend->control_.break_with(error);
      throw;
    }
}

void DeviceBackend::enqueue(std::span<const Enqueued> calls) {
  if (calls.size() == 1)
    calls[0].backend->announce(calls[0].call);
  else
    announce(calls);
  const gsel_transport_v2* table = &calls[0].backend->link_->table();
  if (std::ranges::all_of(calls, [&](const Enqueued& c) { return &c.backend->link_->table() == table; }))
    return enqueue_together(calls);
  for (const Enqueued& c : calls) enqueue_together({&c, 1});
}

// Enqueues calls on one transport. Each communicator has its own clock for its calls under way.
void DeviceBackend::enqueue_together(std::span<const Enqueued> calls) {
  std::vector<gsel_enqueued> all;
  std::map<DeviceBackend*, std::vector<gsel_stream*>> streams;
  double timeout_s = 0;
  for (const Enqueued& c : calls) {
    timeout_s = std::max(timeout_s, c.backend->timeout_s(c.call));
    all.push_back({c.backend->link_->get(), &c.call, c.stream.get()});
    std::vector<gsel_stream*>& known = streams[c.backend];
    if (std::ranges::find(known, c.stream.get()) == known.end()) known.push_back(c.stream.get());
  }
  DeviceBackend& first = *calls[0].backend;
  for (const auto& [backend, own] : streams) backend->clock_.begin(own);
  gsel_error* err = nullptr;
  const gsel_status status = first.link_->table().enqueue(all.data(), all.size(), timeout_s, &err);
  try {
    throw_if_failed(status, err);
  } catch (...) {  // the other ranks have made this call or wait for it
    const Error error = first.with_device(current_error());
    for (const auto& [backend, own] : streams) backend->clock_.drop();
    first.await_cause(error);
    for (const Enqueued& c : calls) c.backend->control_.throw_break_reason();
    for (const Enqueued& c : calls) c.backend->control_.break_with(error);
    throw Error(error);
  }
  const std::string text =
      calls.size() == 1 ? text_of(calls[0].call) : text_of(calls[0].call) + " and the calls of its group";
  for (const auto& [backend, own] : streams) backend->clock_.end(own, text, timeout_s);
  for (const Enqueued& c : calls) describe_received(c.call);
}

// Fills the message from the call: with a transport, a message always has the length of its receive.
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
  out.transport_reason = reasons_.back().c_str();
  if (!link_) return out;
  if (supports(call)) {
    out.transport = agreement_.transport->name.c_str();
    out.protocol = "stream";
    out.reason = "the transport enqueues it";
    out.chunk_bytes = 0;
    out.seconds = 0;
  } else {
    out.transport_reason = "the transport has no such call, type or operation";
  }
  return out;
}

}  // namespace gsel
