// comm/device/through_host.h: calls on a device's memory that go through page-locked memory of the host: what they send
// is copied there, the host's backend makes the calls, and what they received is copied back on the stream. Does not
// know who makes the calls in between.
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

// The stream of a call: the backend's, or one that the caller gives for this call.
using CallStream = std::shared_ptr<gsel_stream>;

// Calls that are made together: as the host makes them, and where their results go.
struct StagedCalls {
  struct Part {
    Memory memory;
    const char* host;  // of recv
    void* recv;
    uint64_t bytes;
    CallStream stream;
  };
  std::vector<gsel_collective> calls;
  std::vector<Part> parts;
};

class ThroughHost {
 public:
  // wait: until the event is reached; throws what has broken the communicator.
  ThroughHost(std::shared_ptr<DeviceContext> device, std::function<void(Event&)> wait)
      : device_(std::move(device)), wait_(std::move(wait)), brought_(device_) {}

  struct Call {
    gsel_collective checked;
    CallStream stream;
  };
  // The same calls on memory of the host, with what the work of their streams has written so far, which is waited for.
  StagedCalls stage(std::span<const Call> calls, int32_t rank, int32_t world_size);
  // Copies back what they received. Returns before the streams have passed it.
  void fetch(StagedCalls staged);

 private:
  struct Spare {
    Memory memory;
    Event idle;  // behind the last copy from it
  };
  Memory take_memory(uint64_t bytes);
  gsel_collective bring(const Call& call, int32_t rank, int32_t world_size, StagedCalls& staged);

  std::shared_ptr<DeviceContext> device_;
  std::function<void(Event&)> wait_;
  Event brought_;
  std::mutex mutex_;  // what is fetched may be so on another thread
  std::list<Spare> spare_;
};

}  // namespace gsel
