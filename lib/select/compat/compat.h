// select/compat/compat.h: how other systems read the same variables and options, bug for bug. Each system has one file
// and one row of systems(). An error of a system is thrown with the nearest selection code, and its text begins with
// the name of the system's exception. Differences from strict reading are added by resolve, not here.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "select/request/request.h"
#include "select/rules/rules.h"

namespace gsel {

// The input of a system, on one host.
struct Case {
  const Inventory& inventory;
  const Environment& environment;
  const Request& request;
  int32_t host = 0;  // index in Inventory::hosts; the host that the system runs on
};

// The output of a system.
struct Reading {
  std::vector<Unit> units;  // in the order in which the program numbers them; may be empty where the system allows it
  std::vector<std::string> names;  // of the units, in the program's own notation; may be left out
  std::string hidden_by;           // why the other devices are not in `units`
  int32_t processes = -1;          // number of processes that the system starts, -1: none
  bool sets_environment = false;   // `environment` replaces what gsel would emit for a child
  EnvLines environment;
  // Variables with which a child sees these units, of a system whose programs read variables of their own; nullptr:
  // what gsel emits by vendor.
  EnvLines (*emit)(const Inventory& inventory, int32_t host, const std::vector<Unit>& units) = nullptr;
  std::map<int32_t, EnvLines> environment_of_host;  // additional variables of a host's processes, by host index
  // Devices that the system assumes and the inventory lacks. Their unit.device continues after the inventory's last
  // device, their Device::host after its last host.
  std::vector<Device> unlisted;
  std::vector<std::string> unlisted_hosts;
};

struct System {
  const char* name;     // as --compat accepts it: "lightning"
  const char* summary;  // one line for messages
  // True: the system reads request.devices itself, in its own grammar. False: the system only decides which devices are
  // visible, and in which order; request.devices, if given, is a gsel spec over these devices.
  bool reads_devices;
  bool reads_hosts;  // the system uses request.include, exclude and hostfile
  bool has_strict;   // strict reading looks at the same variables, and is compared
  Reading (*read)(const Case& asked, Trace& trace);
};

// A reading that consists of the devices a driver shows; adds `warning` if there are none.
Reading reading_of(Visible visible, const char* warning, Trace& trace);

const std::vector<System>& systems();
// nullptr when no system has that name.
const System* system_named(std::string_view name);

// What a CUDA, HIP or Level Zero program sees at present, as its driver reads the variables; the frameworks build on
// these functions. Input that the driver accepts silently does not throw.
Visible cuda_driver(const Group& group, const Environment& environment, Trace& trace);
Visible hip_runtime(const Group& group, const Environment& environment, Trace& trace);
Visible ze_driver(const Group& group, const Environment& environment, Trace& trace);

Reading read_cuda(const Case& asked, Trace& trace);
Reading read_torch(const Case& asked, Trace& trace);
Reading read_hip(const Case& asked, Trace& trace);
Reading read_ze(const Case& asked, Trace& trace);
Reading read_habana(const Case& asked, Trace& trace);
Reading read_ascend(const Case& asked, Trace& trace);
Reading read_vulkan(const Case& asked, Trace& trace);
Reading read_tensorflow(const Case& asked, Trace& trace);
Reading read_lightning(const Case& asked, Trace& trace);
Reading read_torchrun(const Case& asked, Trace& trace);
Reading read_accelerate(const Case& asked, Trace& trace);
Reading read_deepspeed(const Case& asked, Trace& trace);

// ---- devices that PyTorch counts; the launchers and Lightning build on this count -----------------------------------

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
