// comm/device/accelerator.h: the device whose memory a communicator works on, and the transport that may carry it. Made
// once; communicators that are made from one another share it. Does not know how a transport was found.
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
  bool is_named = false;             // the caller named the transport: another one instead is an error
  std::string others;                // why other transports were not taken: "nccl: no libnccl.so.2"; empty: no others

  std::unique_ptr<DeviceMemory> memory;  // of gsel_mem_alloc
};

// Which transport the ranks of a communicator use together: each says what it has, and all come to the same answer.
struct Agreement {
  bool through_host = true;
  std::string reason;               // why that one, and why the others were not taken
  std::vector<int32_t> reached_by;  // devices of other ranks of this process, which reach buffers where they are
};

// Collective. Throws where a transport that some rank names cannot be used, or where some rank does not allow what the
// ranks would have to do: flags are GSEL_COMM_*. agreement.cc
Agreement agree_on_transport(const Accelerator& accelerator, Control& control, uint32_t flags);

}  // namespace gsel
