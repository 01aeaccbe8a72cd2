// comm/device/accelerator.h: the device whose memory a communicator works on, and its transport. Communicators made
// from one another share it.
#pragma once

#include <gsel/comm.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/config.h"
#include "base/error.h"
#include "comm/device/device_memory.h"
#include "comm/device/launch_order.h"
#include "comm/device/transport.h"
#include "device/device.h"

namespace gsel {

// A transport that takes the device's memory.
struct Offered {
  std::shared_ptr<Transport> transport;
  std::string name;
  gsel_transport_description can{};
  std::unique_ptr<LaunchOrder> order{};  // nullptr: the transport keeps it
};

struct Accelerator {
  std::string name;  // "cuda:0"
  std::shared_ptr<DeviceContext> device;
  int32_t ordinal = 0;
  std::string uuid;

  std::vector<Offered> offers;  // in the order of preference; empty: through host memory
  bool is_named = false;        // the caller named the transport: no other
  std::string others;           // why other transports were not used: "nccl: no libnccl.so.2"; empty: no others

  std::unique_ptr<DeviceMemory> memory;  // of gsel_mem_alloc
};

// Whether the options name a device other than the host.
bool has_accelerator(const gsel_comm_options& given);
// Opens the device that the options name, and the transport that the options or the settings name. open.cc
std::shared_ptr<const Accelerator> open_accelerator(const gsel_comm_options& given, const Config& settings);
// Opens the transport of host memory between hosts; its device is the host. With an accelerator, the transport that
// the options name is the accelerator's.
std::shared_ptr<const Accelerator> open_between_hosts(const gsel_comm_options& given, const Config& settings);

// Of open_accelerator: this rank has no such device.
class WithoutDevice : public Error {
 public:
  explicit WithoutDevice(const Error& error) : Error(error) {}
};

// Opens the transports of a communicator after its ranks have met, so that all ranks learn of a failure. Empty: none.
struct OpenTransports {
  using Open = std::function<std::shared_ptr<const Accelerator>()>;
  Open accelerator{};              // empty: the communicator works on host memory
  bool or_host = false;            // the host stands in where no rank can open its accelerator
  std::string how_to_take_host{};  // for the error of a rank without a device
  Open between_hosts{};            // called if the ranks are on several hosts
};

// The transport that the ranks of a communicator have agreed on.
struct Agreement {
  const Offered* transport = nullptr;  // of this rank's accelerator; nullptr: through host memory
  std::string reason;                  // why this transport, and why no other
  bool is_named = false;               // by a rank
  std::vector<int32_t> reached_by;     // devices of other ranks of this process, which access buffers in place
};

// Collective. Throws if the ranks cannot use a transport that a rank names, or if the flags (GSEL_COMM_*) of a rank
// forbid the result. agreement.cc
Agreement agree_on_transport(const Accelerator& accelerator, Control& control, uint32_t flags);

}  // namespace gsel
