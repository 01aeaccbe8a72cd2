// fake/cuda/driver_stream.cc: streams, events and captures of the double of libcuda.so.1. An event belongs to a context
// and is destroyed once; work behind a destroyed stream or event still runs. A capture is a state only: it takes the
// work of its streams and drops it.
#include <deque>
#include <thread>

#include "driver.h"

using namespace fake_cuda;

namespace fake_cuda {
namespace {

struct Capture {
  int mode = kCaptureGlobal;
  std::thread::id thread;
  bool is_invalid = false, is_ended = false;
};
// By number, from 1.
std::map<int, Capture>& captures() {
  static auto* const all = new std::map<int, Capture>;
  return *all;
}

bool is_default(Any handle) {
  return reinterpret_cast<uintptr_t>(handle) <= 2;
}

// What a call on the default stream does to captures of streams that wait for it.
bool breaks_others(Any handle) {
  if (!is_default(handle)) return false;
  bool found = false;
  for (auto& [number, capture] : captures())
    if (!capture.is_ended) capture.is_invalid = found = true;
  return found;
}

}  // namespace

bool breaks_capture() {
  const int mode = thread_state().capture_mode;
  bool found = false;
  for (auto& [number, capture] : captures()) {
    const bool is_own = capture.thread == std::this_thread::get_id();
    const bool forbids = capture.mode == kCaptureGlobal   ? mode == kCaptureGlobal || (mode == kCaptureThread && is_own)
                         : capture.mode == kCaptureThread ? mode != kCaptureRelaxed && is_own
                                                          : false;
    if (capture.is_ended || !forbids) continue;
    capture.is_invalid = found = true;
  }
  return found;
}

bool is_captured(Stream& stream) {
  return stream.capture != 0;
}

}  // namespace fake_cuda

namespace {

// nullptr: it was destroyed.
Event* event_of(Machine& machine, Any handle) {
  auto* event = static_cast<Event*>(handle);
  if (!event->is_destroyed) return event;
  machine.violation("a call on an event that was destroyed");
  return nullptr;
}

template <class Body>
int on_event(Any handle, Body&& body) {
  return call([&](Machine& machine) {
    Event* event = event_of(machine, handle);
    if (!event) return static_cast<int>(kInvalidHandle);
    if (event->capture) return static_cast<int>(kCapturedEvent);
    return static_cast<int>(body(machine, *event));
  });
}

}  // namespace

// ---- streams --------------------------------------------------------------------------------------------------------

EXPORT int cuStreamCreateWithPriority(Any* out, unsigned, int) {
  return call([&](Machine& machine) {
    *out = machine.make_stream(current());
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
    if (is_default(handle)) return kInvalidHandle;
    machine.destroy_stream(stream);
    return kOk;
  });
}

EXPORT int cuStreamSynchronize(Any handle) {
  return on_stream(handle, [&](Machine& machine, Stream& stream) {
    if (stream.capture || breaks_others(handle)) {
      captures()[stream.capture].is_invalid = true;
      return static_cast<int>(kCaptureUnsupported);
    }
    ++thread_state().waits;
    look_at_wait(machine, "cuStreamSynchronize");
    machine.finish(stream);
    return ended();
  });
}

EXPORT int cuStreamWaitEvent(Any handle, Any event_handle, unsigned) {
  return on_stream(handle, [&](Machine& machine, Stream& stream) {
    Event* event = event_of(machine, event_handle);
    if (!event) return kInvalidHandle;
    if (event->capture && !stream.capture) stream.capture = event->capture;  // joins it
    if (stream.capture && event->capture != stream.capture) return kCaptureIsolation;
    if (!stream.capture) machine.await(stream, *event);
    return kOk;
  });
}

// ---- captures -------------------------------------------------------------------------------------------------------

EXPORT int cuStreamBeginCapture_v2(Any handle, int mode) {
  return on_stream(handle, [&](Machine&, Stream& stream) {
    if (is_default(handle)) return kCaptureUnsupported;
    if (stream.capture) return kInvalidValue;
    stream.capture = static_cast<int>(captures().size()) + 1;
    captures()[stream.capture] = {mode, std::this_thread::get_id()};
    return kOk;
  });
}

EXPORT int cuStreamEndCapture(Any handle, Any* graph) {
  return on_stream(handle, [&](Machine&, Stream& stream) {
    *graph = nullptr;
    if (!stream.capture) return kInvalidValue;
    Capture& capture = captures()[stream.capture];
    capture.is_ended = true;
    stream.capture = 0;
    if (capture.is_invalid) return kCaptureInvalidated;
    *graph = &capture;
    return kOk;
  });
}

EXPORT int cuStreamIsCapturing(Any handle, int* status) {
  return on_stream(handle, [&](Machine&, Stream& stream) {
    *status = !stream.capture ? 0 : captures()[stream.capture].is_invalid ? 2 : 1;
    return kOk;
  });
}

EXPORT int cuThreadExchangeStreamCaptureMode(int* mode) {
  std::swap(thread_state().capture_mode, *mode);
  return kOk;
}

EXPORT int cuGraphDestroy(Any) {
  return kOk;
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
    if (!event || event->context != stream.context) return kInvalidHandle;
    event->capture = stream.capture;
    if (!stream.capture) machine.record(stream, *event);
    return kOk;
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
    const bool is_reached = machine.look(event);
    return ended() ? ended() : is_reached ? static_cast<int>(kOk) : static_cast<int>(kNotReady);
  });
}

EXPORT int cuEventElapsedTime(float* milliseconds, Any a, Any b) {
  return call([&](Machine& machine) {
    const Event *from = event_of(machine, a), *to = event_of(machine, b);
    if (!from || !to) return kInvalidHandle;
    if (from->reached < from->recorded || to->reached < to->recorded) return kNotReady;
    *milliseconds = static_cast<float>(static_cast<double>(to->time_ns - from->time_ns) * 1e-6);
    return kOk;
  });
}
