// fake/cuda/captures.h: captures of streams and the graphs that they become, by the rules of CUDA's programming guide
// ("Prohibited and Unhandled Operations"). A capture runs nothing. A stream joins it by waiting for an event that was
// recorded in it, and is joined again before the capture ends. An operation that a capture forbids invalidates it: its
// streams refuse all work until it is ended, which then fails. A launch enqueues what was recorded, with the arguments
// of then, on the stream of the launch and on one stream of the graph for each other that was captured.
// Not modelled: collectives of NCCL in graphs (a capture drops them, and the graph is not launched), child graphs,
// memory that is allocated in stream order.
#pragma once

#include "cuda_api.h"
#include "machine.h"

namespace fake_cuda {

// The legacy stream, and that of a thread.
inline bool is_default(Any handle) {
  return reinterpret_cast<uintptr_t>(handle) <= 2;
}

// Whether a capture under way forbids a call that is not safe in one; it is invalidated by that.
bool breaks_capture();
// The same of a use of the legacy stream, if a captured stream waits for it. False for other streams.
bool breaks_capture_of_blocking(const Stream& stream);
inline bool is_captured(const Stream& stream) {
  return stream.capture != 0;
}
// Invalidates a capture that has not ended, and returns the error.
int break_capture(int number, int error);

// What is enqueued on a stream that is captured: an error, or kOk and it is recorded.
int capture_work(Stream& stream, Operation operation);
int capture_record(Stream& stream, Event& event);
void capture_drop(Stream& stream, const std::string& name);
// Of a stream that is captured, or of an event that was recorded in a capture.
int capture_wait(Stream& stream, Event& event, bool is_legacy);

}  // namespace fake_cuda
