// comm/device/through_host.h: calls on a device's memory that go through page-locked memory of the host: what they
// send is copied there, the control link makes the call, and what it received is copied back on the stream. Waits for
// the stream and for the other ranks. Does not know who makes the call in between.
#pragma once

#include <gsel/comm.h>

#include <memory>
#include <vector>

#include "device/device.h"

namespace gsel {

class ThroughHost {
 public:
  explicit ThroughHost(std::shared_ptr<DeviceContext> device) : device_(std::move(device)), idle_(device_) {}

  // The same call on memory of the host, with what the stream's work has written so far. To be followed by one fetch of
  // all of them, or by drop.
  gsel_collective stage(const gsel_collective& checked, int32_t rank, int32_t world_size, gsel_stream* stream);
  // Copies back what the staged calls received. Returns before the stream has passed it.
  void fetch(gsel_stream* stream);
  void drop() { staged_ = 0; }

 private:
  struct Staged {
    Memory memory;
    const char* host = nullptr;  // of recv
    void* recv = nullptr;
    uint64_t bytes = 0;
  };
  std::shared_ptr<DeviceContext> device_;
  std::vector<Staged> calls_;  // the first staged_ of them are under way
  size_t staged_ = 0;
  Event idle_;  // behind the copies of the last fetch
};

}  // namespace gsel
