// fake/cuda/driver.h: what the functions of the double of libcuda.so.1 share: the contexts of a thread, and what every
// call looks at before its work.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "callbacks.h"
#include "cuda_api.h"
#include "machine.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace fake_cuda {

struct ThreadState {
  int waits = 0;                     // for a stream or an event
  const Event* looked_at = nullptr;  // last
  uint64_t looked_record = 0;
  int looks = 0;  // at that one, in a row
  int depth = 0;  // calls that this thread is in
  int64_t entries = 0;
  bool counts_time = false;  // reading the clock of the processor is a system call
  int64_t inside_ns = 0;
  std::vector<uintptr_t> current;
  int capture_mode = kCaptureGlobal;
  int calls_left = 0, loss = 0;  // until the device is gone, and the error then; 0: it stays
};
ThreadState& thread_state();

int ended();  // the error that has ended CUDA in this process; kOk: none has
void end_cuda(int error);
void count_call();  // which may be the one that finds the device gone
bool is_alive(uintptr_t context);

// The processor time that a thread spends in this double, which does with the processor what a GPU does beside it.
class Inside {
 public:
  Inside();
  ~Inside();
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

 private:
  int64_t began_ns_ = 0;
};

inline uintptr_t current() {
  return thread_state().current.back();
}

// Every call with a context: it is current, CUDA has not ended, and what the work before did wrong comes out here.
template <class Body>
int call(Body&& body) {
  const Inside inside;
  Machine& machine = Machine::get();
  const std::lock_guard lock(machine.mutex());
  count_call();
  if (ended()) return ended();
  if (thread_state().current.empty()) {
    machine.violation("a call without a current context");
    return kInvalidContext;
  }
  if (!is_alive(current())) return kContextDestroyed;
  const int result = body(machine);
  if (result != kOk && result != kNotReady) return result;
  if (is_left_to_library()) return result;
  return machine.take_violation().empty() ? result : static_cast<int>(kUnknown);
}

// Every call on a stream: its own context is current, not any.
template <class Body>
int on_stream(Any handle, Body&& body) {
  return call([&](Machine& machine) {
    Stream* stream = machine.stream(handle, current());
    if (!stream) return static_cast<int>(kInvalidHandle);
    if (stream->context == current()) return static_cast<int>(body(machine, *stream));
    machine.violation("a call on stream " + std::to_string(stream->id) + " of device " +
                      std::to_string(device_of(stream->context)) + " while device " +
                      std::to_string(device_of(current())) + " is current");
    return static_cast<int>(kInvalidHandle);
  });
}

// Work for a stream, which may be captured.
int take_work(Machine& machine, Stream& stream, Operation operation);
// A kernel is launched, which may be the one that ends CUDA.
void count_launch(Machine& machine, Operation& operation);

}  // namespace fake_cuda
