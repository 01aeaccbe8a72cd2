// select/compat/torch_devices.h: the devices that PyTorch counts on a host. The launchers and Lightning build on this
// count. Does not know their options.
#pragma once

#include <optional>

#include "select/compat/compat.h"

namespace gsel {

// One kind of device that PyTorch drives.
struct TorchBackend {
  const char* vendor;
  const char* name;  // in messages: "CUDA"
  const char* mask;  // the variable with which launchers hide its devices
  Visible (*visible)(const Group& group, const Environment& environment, Trace& trace);
};

// The first backend for which the host has a device, as in a PyTorch built for that host; nullptr: CPU only.
const TorchBackend* torch_backend(const Inventory& inventory, int32_t host);

// The devices that processes with this environment see, numbered from 0; none on a host without accelerators.
Visible torch_devices(const Inventory& inventory, int32_t host, const Environment& environment, Trace& trace);

std::optional<Unit> cpu_of(const Inventory& inventory, int32_t host);

// Local rank r uses visible device r: the units used by `processes` ranks. Warns of ranks without a device, beginning
// with `whose`, such as "torchrun".
std::vector<Unit> units_of_ranks(const std::vector<Unit>& visible, int64_t processes, std::string_view whose,
                                 Trace& trace);

// Why no process uses the remaining devices: the driver hides some, for the others the reason is `untaken`.
std::string why_left(const Inventory& inventory, const Visible& visible, const std::string& untaken);

}  // namespace gsel
