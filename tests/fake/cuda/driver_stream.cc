// fake/cuda/driver_stream.cc: streams and events of the double of libcuda.so.1. An event belongs to a context and is
// destroyed once; work behind a destroyed stream or event still runs.
#include <algorithm>
#include <deque>
#include <utility>

#include "captures.h"
#include "driver.h"

using namespace fake_cuda;

namespace {

// nullptr: it was destroyed.
Event* event_of(Machine& machine, Any handle) {
  auto* event = static_cast<Event*>(handle);
  if (!event->is_destroyed) return event;
  machine.violation("a call on an event that was destroyed");
  return nullptr;
}

constexpr int kLooksOfStream = 8;  // operations that go on at a look

// In page-locked memory, or on a device.
bool is_word(const Machine& machine, Pointer at) {
  const Allocation* a = machine.find(at);
  return a && at % sizeof(uint32_t) == 0 && at + sizeof(uint32_t) <= a->end;
}

template <class Body>
int on_event(Any handle, Body&& body) {
  return call([&](Machine& machine) {
    Event* event = event_of(machine, handle);
    if (!event) return static_cast<int>(kInvalidHandle);
    if (event->capture) return break_capture(event->capture, kCapturedEvent);
    return static_cast<int>(body(machine, *event));
  });
}

}  // namespace

// ---- streams --------------------------------------------------------------------------------------------------------

EXPORT int cuStreamCreateWithPriority(Any* out, unsigned flags, int) {
  return call([&](Machine& machine) {
    Stream* made = machine.make_stream(current());
    made->blocks = flags != kNonBlocking;
    *out = made;
    return kOk;
  });
}

EXPORT int cuStreamGetCtx(Any handle, Any* context) {
  return call([&](Machine& machine) {
    const Stream* stream = machine.stream(handle, current());
    if (!stream) return kInvalidHandle;
    *context = reinterpret_cast<Any>(stream->context);
    return kOk;
  });
}

EXPORT int cuStreamDestroy_v2(Any handle) {
  return on_stream(handle, [&](Machine& machine, Stream& stream) {
    if (is_default(handle)) return static_cast<int>(kInvalidHandle);
    if (stream.capture) return break_capture(stream.capture, kCaptureUnsupported);
    machine.destroy_stream(stream);
    return static_cast<int>(kOk);
  });
}

EXPORT int cuStreamSynchronize(Any handle) {
  return on_stream(handle, [&](Machine& machine, Stream& stream) {
    if (stream.capture) return break_capture(stream.capture, kCaptureUnsupported);
    if (breaks_capture_of_blocking(stream)) return static_cast<int>(kCaptureImplicit);
    ++thread_state().waits;
    look_at_wait(machine, "cuStreamSynchronize");
    machine.finish(stream);
    return ended();
  });
}

EXPORT int cuStreamQuery(Any handle) {
  return on_stream(handle, [&](Machine& machine, Stream& stream) {
    if (stream.capture) return break_capture(stream.capture, kCaptureUnsupported);
    if (breaks_capture_of_blocking(stream)) return static_cast<int>(kCaptureImplicit);
    const bool is_empty = machine.look(stream, kLooksOfStream);
    return ended() ? ended() : is_empty ? static_cast<int>(kOk) : static_cast<int>(kNotReady);
  });
}

EXPORT int cuStreamWaitEvent(Any handle, Any event_handle, unsigned) {
  return on_stream(handle, [&](Machine& machine, Stream& stream) {
    Event* event = event_of(machine, event_handle);
    if (!event) return static_cast<int>(kInvalidHandle);
    if (stream.capture || event->capture) return capture_wait(stream, *event, is_default(handle));
    if (breaks_capture_of_blocking(stream)) return static_cast<int>(kCaptureImplicit);
    machine.await(stream, *event);
    return static_cast<int>(kOk);
  });
}

// ---- words ----------------------------------------------------------------------------------------------------------

EXPORT int cuStreamWriteValue32_v2(Any handle, Pointer at, uint32_t value, unsigned flags) {
  return on_stream(handle, [&](Machine& machine, Stream& stream) {
    if (flags || !is_word(machine, at)) return static_cast<int>(kInvalidValue);
    Operation operation;
    operation.name = "a write of a word";
    operation.accesses = {{at, at + sizeof(uint32_t), true, true}};
    operation.writes_word = {at, value, kWaitAtLeast};
    return take_work(machine, stream, std::move(operation));
  });
}

EXPORT int cuStreamWaitValue32_v2(Any handle, Pointer at, uint32_t value, unsigned flags) {
  return on_stream(handle, [&](Machine& machine, Stream& stream) {
    const unsigned condition = flags & ~kWaitFlush;
    if (condition > kWaitNor || !is_word(machine, at)) return static_cast<int>(kInvalidValue);
    if (flags & kWaitFlush || condition == kWaitNor) return static_cast<int>(kNotSupported);
    Operation operation;
    operation.name = "the wait for a word";
    operation.accesses = {{at, at + sizeof(uint32_t), false, true}};
    operation.awaits_word = {at, value, static_cast<int>(condition)};
    return take_work(machine, stream, std::move(operation));
  });
}

// ---- events ---------------------------------------------------------------------------------------------------------

EXPORT int cuEventCreate(Any* out, unsigned) {
  return call([&](Machine&) {
    static auto* const events = new std::deque<Event>;  // what is enqueued may use one that was destroyed
    Event& made = events->emplace_back();
    made.context = current();
    *out = &made;
    return kOk;
  });
}

EXPORT int cuEventDestroy_v2(Any handle) {
  return call([&](Machine& machine) {
    Event* event = event_of(machine, handle);
    if (!event) return kInvalidHandle;
    event->is_destroyed = true;
    return kOk;
  });
}

EXPORT int cuEventRecord(Any handle, Any stream_handle) {
  return on_stream(stream_handle, [&](Machine& machine, Stream& stream) {
    Event* event = event_of(machine, handle);
    if (!event || event->context != stream.context) return static_cast<int>(kInvalidHandle);
    if (stream.capture) return capture_record(stream, *event);
    if (breaks_capture_of_blocking(stream)) return static_cast<int>(kCaptureImplicit);
    event->capture = 0;
    machine.record(stream, *event);
    return static_cast<int>(kOk);
  });
}

EXPORT int cuEventSynchronize(Any handle) {
  return on_event(handle, [&](Machine& machine, Event& event) {
    if (breaks_capture()) return static_cast<int>(kCaptureUnsupported);
    ++thread_state().waits;
    look_at_wait(machine, "cuEventSynchronize");
    machine.finish(event);
    return ended();
  });
}

EXPORT int cuEventQuery(Any handle) {
  return on_event(handle, [&](Machine& machine, Event& event) {
    if (breaks_capture()) return static_cast<int>(kCaptureUnsupported);
    ThreadState& state = thread_state();
    const bool is_new = std::exchange(state.looked_at, &event) != &event || state.looked_record != event.recorded;
    state.looked_record = event.recorded;
    state.waits += is_new;
    state.looks = is_new ? 1 : std::min(state.looks + 1, 64);
    const bool is_reached = machine.look(event, state.looks);
    return ended() ? ended() : is_reached ? static_cast<int>(kOk) : static_cast<int>(kNotReady);
  });
}

EXPORT int cuEventElapsedTime(float* milliseconds, Any a, Any b) {
  return call([&](Machine& machine) {
    const Event *from = event_of(machine, a), *to = event_of(machine, b);
    if (!from || !to) return kInvalidHandle;
    if (from->capture || to->capture) return kCapturedEvent;
    if (from->reached < from->recorded || to->reached < to->recorded) return kNotReady;
    *milliseconds = static_cast<float>(static_cast<double>(to->time_ns - from->time_ns) * 1e-6);
    return kOk;
  });
}
