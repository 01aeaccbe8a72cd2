// plugins/device/cuda/stream.cc: streams and events, created here or imported from the program. Streams created here
// never wait for the legacy default stream.
#include <cstdio>

#include "context.h"

namespace gsel_cuda {
namespace {

void check_flags(uint32_t flags, uint32_t known, const char* of) {
  if (flags & ~known) {
    char text[96];
    snprintf(text, sizeof text, "flags of %s are %#x, known are %#x", of, flags, known);
    fail(GSEL_ERR_ARG, text);
  }
}

gsel_status stream_create(void* ctx, uint32_t flags, gsel_stream** out, gsel_error** err) {
  *out = nullptr;
  return run(ctx, err, [&](Context& c) {
    check_flags(flags, GSEL_STREAM_HIGH_PRIORITY, "a stream");
    int least = 0, greatest = 0;
    check(c, c.driver->cuCtxGetStreamPriorityRange(&least, &greatest), "the priorities of streams");
    CUstream native;
    const int priority = flags & GSEL_STREAM_HIGH_PRIORITY ? greatest : least;
    check(c, c.driver->cuStreamCreateWithPriority(&native, CU_STREAM_NON_BLOCKING, priority), "a stream");
    *out = new gsel_stream{native, true, {}};
  });
}

gsel_status stream_import(void* ctx, void* native, gsel_stream** out, gsel_error** err) {
  *out = nullptr;
  return run(ctx, err, [&](Context& c) {
    // NULL is the legacy default stream; a program compiled for per-thread streams passes CU_STREAM_PER_THREAD.
    const CUstream stream = native ? static_cast<CUstream>(native) : reinterpret_cast<CUstream>(kDefaultStream);
    CUcontext context;
    check(c, c.driver->cuStreamGetCtx(stream, &context), "the context of an imported stream");
    if (context != c.context)
      fail(GSEL_ERR_ARG, "an imported stream belongs to another device than device " + std::to_string(c.ordinal) +
                             ", or to a context of its own; expected a stream of the device's primary context");
    *out = new gsel_stream{stream, false, {}};
  });
}

void* stream_native(void* ctx, gsel_stream* stream) {
  return stream_of(context_of(ctx), stream).native;
}

void stream_free(void* ctx, gsel_stream* stream) {
  if (!stream) return;
  run(ctx, nullptr, [&](Context& c) {
    if (stream->scratch.memory) {
      c.driver->cuStreamSynchronize(stream->native);
      c.driver->cuMemFree(stream->scratch.memory);
      for (const CUdeviceptr memory : stream->scratch.too_small) c.driver->cuMemFree(memory);
    }
    if (stream->own) c.driver->cuStreamDestroy(stream->native);
  });
  delete stream;
}

gsel_status stream_wait(void* ctx, gsel_stream* stream, gsel_error** err) {
  return run(ctx, err, [&](Context& c) {
    check(c, c.driver->cuStreamSynchronize(stream_of(c, stream).native), "waiting for a stream");
  });
}

gsel_status event_create(void* ctx, uint32_t flags, gsel_event** out, gsel_error** err) {
  *out = nullptr;
  return run(ctx, err, [&](Context& c) {
    check_flags(flags, GSEL_EVENT_TIMING, "an event");
    CUevent native;
    const unsigned kind = flags & GSEL_EVENT_TIMING ? CU_EVENT_DEFAULT : CU_EVENT_DISABLE_TIMING;
    check(c, c.driver->cuEventCreate(&native, kind), "an event");
    *out = new gsel_event{native, true};
  });
}

gsel_status event_import(void* ctx, void* native, gsel_event** out, gsel_error** err) {
  *out = nullptr;
  return run(ctx, err, [&](Context&) {
    if (!native) fail(GSEL_ERR_ARG, "the event to import is NULL");
    *out = new gsel_event{static_cast<CUevent>(native), false};
  });
}

void* event_native(void*, gsel_event* event) {
  return event->native;
}

void event_free(void* ctx, gsel_event* event) {
  if (!event) return;
  run(ctx, nullptr, [&](Context& c) {
    if (event->own) c.driver->cuEventDestroy(event->native);
  });
  delete event;
}

gsel_status event_record(void* ctx, gsel_event* event, gsel_stream* stream, gsel_error** err) {
  return run(ctx, err, [&](Context& c) {
    check(c, c.driver->cuEventRecord(event->native, stream_of(c, stream).native), "recording an event");
  });
}

gsel_status event_wait(void* ctx, gsel_event* event, gsel_error** err) {
  return run(ctx, err,
             [&](Context& c) { check(c, c.driver->cuEventSynchronize(event->native), "waiting for an event"); });
}

// A library thread may query events while the program captures a stream elsewhere; a capture in global mode would
// otherwise fail.
class ApartFromCaptures {
 public:
  explicit ApartFromCaptures(Context& c) : c_(c) { c_.driver->cuThreadExchangeStreamCaptureMode(&mode_); }
  ~ApartFromCaptures() { c_.driver->cuThreadExchangeStreamCaptureMode(&mode_); }
  ApartFromCaptures(const ApartFromCaptures&) = delete;
  ApartFromCaptures& operator=(const ApartFromCaptures&) = delete;

 private:
  Context& c_;
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;  // afterwards the previous mode
};

gsel_status event_done(void* ctx, gsel_event* event, int32_t* done, gsel_error** err) {
  *done = 0;
  return run(ctx, err, [&](Context& c) {
    const ApartFromCaptures apart(c);
    const CUresult result = c.driver->cuEventQuery(event->native);
    if (result == CUDA_ERROR_NOT_READY) return;
    if (result == CUDA_ERROR_CAPTURED_EVENT) {  // the record is part of a graph and has not run
      *done = 1;
      return;
    }
    check(c, result, "looking at an event");
    *done = 1;
  });
}

gsel_status stream_wait_event(void* ctx, gsel_stream* stream, gsel_event* event, gsel_error** err) {
  return run(ctx, err, [&](Context& c) {
    check(c, c.driver->cuStreamWaitEvent(stream_of(c, stream).native, event->native, CU_EVENT_WAIT_DEFAULT),
          "a wait of a stream for an event");
  });
}

double event_seconds(void* ctx, gsel_event* a, gsel_event* b) {
  float milliseconds = 0;
  run(ctx, nullptr, [&](Context& c) { c.driver->cuEventElapsedTime(&milliseconds, a->native, b->native); });
  return static_cast<double>(milliseconds) * 1e-3;
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

}  // namespace gsel_cuda
