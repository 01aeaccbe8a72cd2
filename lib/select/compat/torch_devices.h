// select/compat/torch_devices.h: the devices that PyTorch counts on a host. The launchers and Lightning build on this
// count. Does not know their options.
#pragma once

#include <optional>

#include "select/compat/compat.h"

namespace gsel {

// One kind of device that PyTorch drives.
struct TorchBackend {
  const char* vendor;
  const char* name;  // as messages call it: "CUDA"
  const char* mask;  // the variable by which launchers hide devices of it
  Visible (*visible)(const Group& group, const Environment& environment, Trace& trace);
};

// The first backend of which the host has a device, as a PyTorch built for that host would have; nullptr: CPU only.
const TorchBackend* torch_backend(const Inventory& inventory, int32_t host);

// What processes started with this environment number from 0; nothing on a host without accelerators.
Visible torch_devices(const Inventory& inventory, int32_t host, const Environment& environment, Trace& trace);

std::optional<Unit> cpu_of(const Inventory& inventory, int32_t host);

// Local rank r takes visible device r: the units that so many processes use. Ranks that find none are warned of, with
// `whose` before, such as "torchrun".
std::vector<Unit> units_of_ranks(const std::vector<Unit>& visible, int64_t processes, std::string_view whose,
                                 Trace& trace);

// Why the devices that no process takes are left: some may be hidden by the driver, the others are `untaken`.
std::string why_left(const Inventory& inventory, const Visible& visible, const std::string& untaken);

}  // namespace gsel
