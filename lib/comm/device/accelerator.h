// comm/device/accelerator.h: the device whose memory a communicator works on, and its transport. Communicators made
// from one another share it. Does not know how a transport was found.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "comm/device/device_memory.h"
#include "comm/device/transport.h"
#include "device/device.h"

namespace gsel {

struct Accelerator {
  std::string name;  // "cuda:0"
  std::shared_ptr<DeviceContext> device;
  int32_t ordinal = 0;
  std::string uuid;

  std::shared_ptr<Transport> transport;  // nullptr: through host memory
  std::string transport_name = "host";
  gsel_transport_description can{};  // of the transport
  bool is_named = false;             // the caller named the transport: no fallback
  std::string others;                // why other transports were not used: "nccl: no libnccl.so.2"; empty: no others

  std::unique_ptr<DeviceMemory> memory;  // of gsel_mem_alloc
};

// The transport that the ranks of a communicator have agreed on.
struct Agreement {
  bool through_host = true;
  std::string reason;               // why this transport, and why no other
  std::vector<int32_t> reached_by;  // devices of other ranks of this process, which access buffers in place
};

// Collective. Throws if the ranks cannot use a transport that a rank names, or if the flags (GSEL_COMM_*) of a rank
// forbid the result. agreement.cc
Agreement agree_on_transport(const Accelerator& accelerator, Control& control, uint32_t flags);

}  // namespace gsel
