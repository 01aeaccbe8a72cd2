// comm/device/through_host.h: calls on a device's memory that go through page-locked memory of the host: what they send
// is copied there, the host's backend makes the calls, and what they received is copied back on the stream. Does not
// know who makes the calls in between.
#pragma once

#include <gsel/comm.h>

#include <functional>
#include <list>
#include <memory>
#include <span>
#include <vector>

#include "device/device.h"

namespace gsel {

// Calls that are made together: as the host makes them, and where their results go.
struct StagedCalls {
  struct Part {
    Memory memory;
    const char* host;  // of recv
    void* recv;
    uint64_t bytes;
  };
  std::vector<gsel_collective> calls;
  std::vector<Part> parts;
};

class ThroughHost {
 public:
  // wait: until the event is reached; throws what has broken the communicator.
  ThroughHost(std::shared_ptr<DeviceContext> device, std::function<void(Event&)> wait)
      : device_(std::move(device)), wait_(std::move(wait)), brought_(device_) {}

  // The same calls on memory of the host, with what the stream's work has written so far. Waits for the stream.
  StagedCalls stage(std::span<const gsel_collective> checked, int32_t rank, int32_t world_size, gsel_stream* stream);
  // Copies back what they received. Returns before the stream has passed it.
  void fetch(StagedCalls staged, gsel_stream* stream);

 private:
  struct Spare {
    Memory memory;
    Event idle;  // behind the last copy from it
  };
  Memory take_memory(uint64_t bytes);
  gsel_collective bring(const gsel_collective& checked, int32_t rank, int32_t world_size, gsel_stream* stream,
                        StagedCalls& staged);

  std::shared_ptr<DeviceContext> device_;
  std::function<void(Event&)> wait_;
  Event brought_;
  std::list<Spare> spare_;
};

}  // namespace gsel
