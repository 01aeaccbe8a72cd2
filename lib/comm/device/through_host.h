// comm/device/through_host.h: calls on device memory that go through page-locked host memory: send buffers are copied
// to it, the host backend makes the calls, and recv buffers are copied back on the stream. Does not know who makes the
// calls in between.
#pragma once

#include <gsel/comm.h>

#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "device/device.h"

namespace gsel {

// The stream of a call: the backend's, or the one in the call.
using CallStream = std::shared_ptr<gsel_stream>;

// Calls made together: on host memory, and the places of their results on the device.
struct StagedCalls {
  struct Result {
    Memory memory;
    const char* host;  // of recv
    void* recv;
    uint64_t bytes;
    CallStream stream;
  };
  std::vector<gsel_collective> calls;
  std::vector<Result> results;
};

class ThroughHost {
 public:
  // Waits until the event is reached, which comes before the call; throws if the communicator is broken, or if it does
  // not come.
  using Wait = std::function<void(Event&, const gsel_collective& call)>;
  ThroughHost(std::shared_ptr<DeviceContext> device, Wait wait)
      : device_(std::move(device)), wait_(std::move(wait)), brought_(device_) {}
  // Waits for copies from and to its memory.
  ~ThroughHost();
  ThroughHost(const ThroughHost&) = delete;
  ThroughHost& operator=(const ThroughHost&) = delete;

  struct Call {
    gsel_collective checked;
    CallStream stream;
  };
  // Waits for the work enqueued on the calls' streams, copies to host memory and returns the same calls on that memory.
  StagedCalls stage(std::span<const Call> calls, int32_t rank, int32_t world_size);
  // Enqueues the copies of the results to the device.
  void fetch(StagedCalls staged);

 private:
  struct Spare {
    Memory memory;
    Event idle;  // after the last copy from it
  };
  bool ends(Event& event, int64_t latest_ns) const noexcept;
  void keep(StagedCalls& staged);
  void keep_after_failure(StagedCalls& staged) noexcept;
  Memory take_memory(uint64_t bytes, const gsel_collective& call);
  gsel_collective bring(const Call& call, int32_t rank, int32_t world_size, StagedCalls& staged);

  std::shared_ptr<DeviceContext> device_;
  Wait wait_;
  Event brought_;
  std::mutex mutex_;  // fetch may run on another thread
  std::list<Spare> spare_;
};

}  // namespace gsel
