// select/probe/nvml.cc: NVIDIA devices through NVML, which ignores every mask, starts no context and is safe before
// fork.
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "select/inventory/known.h"
#include "select/probe/probes.h"

// ---- the part of NVML's interface that is used; NVML is opened at run time ------------------------------------------
// No NVIDIA header is needed. Source: NVML API reference; struct layouts are those of functions with _v2 and _v3, which
// do not change.

namespace gsel::nvml {

constexpr int kSuccess = 0, kNotSupported = 3, kNoPermission = 4, kNotFound = 6, kInsufficientSize = 7,
              kDriverNotLoaded = 9;
constexpr unsigned kTextBytes = 96;
constexpr unsigned kClockSm = 1;
constexpr unsigned kRemoteSwitch = 2;

struct Handle;
struct Pci {
  char legacy_id[16];
  unsigned domain, bus, device, device_id, subsystem_id;
  char id[32];
};
struct Memory {
  unsigned long long total, free, used;
};

struct Api {
  std::string name;
  std::unique_ptr<void, int (*)(void*)> library{nullptr, dlclose};
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*device_count)(unsigned*) = nullptr;
  int (*device_at)(unsigned, Handle**) = nullptr;
  int (*device_name)(Handle*, char*, unsigned) = nullptr;
  int (*device_uuid)(Handle*, char*, unsigned) = nullptr;
  int (*device_pci)(Handle*, Pci*) = nullptr;
  int (*device_memory)(Handle*, Memory*) = nullptr;
  int (*device_capability)(Handle*, int*, int*) = nullptr;
  // Not in every driver:
  const char* (*error_text)(int) = nullptr;
  int (*device_cores)(Handle*, unsigned*) = nullptr;
  int (*device_processes)(Handle*, unsigned*, void*) = nullptr;
  int (*device_compute_mode)(Handle*, unsigned*) = nullptr;
  int (*device_max_clock)(Handle*, unsigned, unsigned*) = nullptr;
  int (*mig_mode)(Handle*, unsigned*, unsigned*) = nullptr;
  int (*mig_count)(Handle*, unsigned*) = nullptr;
  int (*mig_at)(Handle*, unsigned, Handle**) = nullptr;
  int (*mig_gi)(Handle*, unsigned*) = nullptr;
  int (*mig_ci)(Handle*, unsigned*) = nullptr;
  int (*link_state)(Handle*, unsigned, unsigned*) = nullptr;
  int (*link_remote_pci)(Handle*, unsigned, Pci*) = nullptr;
  int (*link_remote_type)(Handle*, unsigned, unsigned*) = nullptr;
  int (*common_ancestor)(Handle*, Handle*, unsigned*) = nullptr;

  std::string text(int status) const;
  // Throws GSEL_ERR_IO unless the status is success.
  void check(int status, const char* call) const;
};

// Leaves `api` empty when there is no NVML, which is normal. GSEL_NVML_LIBRARY names another library, for tests.
// GSEL_ERR_ARG, and GSEL_ERR_IO when the library exists but cannot be used.
void open_api(Api& api);

namespace {

template <class F>
void optional(Api& api, F& function, const char* symbol) {
  if (!function) function = reinterpret_cast<F>(dlsym(api.library.get(), symbol));
}

template <class F>
void needed(Api& api, F& function, const char* symbol) {
  optional(api, function, symbol);
  if (!function) fail(GSEL_ERR_IO, "NVML: {} has no {}; a newer NVIDIA driver is needed", api.name, symbol);
}

void find_symbols(Api& api) {
  needed(api, api.init, "nvmlInit_v2");
  needed(api, api.shutdown, "nvmlShutdown");
  needed(api, api.device_count, "nvmlDeviceGetCount_v2");
  needed(api, api.device_at, "nvmlDeviceGetHandleByIndex_v2");
  needed(api, api.device_name, "nvmlDeviceGetName");
  needed(api, api.device_uuid, "nvmlDeviceGetUUID");
  needed(api, api.device_pci, "nvmlDeviceGetPciInfo_v3");
  needed(api, api.device_memory, "nvmlDeviceGetMemoryInfo");
  needed(api, api.device_capability, "nvmlDeviceGetCudaComputeCapability");
  optional(api, api.error_text, "nvmlErrorString");
  optional(api, api.device_cores, "nvmlDeviceGetNumGpuCores");
  for (const char* symbol : {"nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2",
                             "nvmlDeviceGetComputeRunningProcesses"})
    optional(api, api.device_processes, symbol);
  optional(api, api.device_compute_mode, "nvmlDeviceGetComputeMode");
  optional(api, api.device_max_clock, "nvmlDeviceGetMaxClockInfo");
  optional(api, api.mig_mode, "nvmlDeviceGetMigMode");
  optional(api, api.mig_count, "nvmlDeviceGetMaxMigDeviceCount");
  optional(api, api.mig_at, "nvmlDeviceGetMigDeviceHandleByIndex");
  optional(api, api.mig_gi, "nvmlDeviceGetGpuInstanceId");
  optional(api, api.mig_ci, "nvmlDeviceGetComputeInstanceId");
  optional(api, api.link_state, "nvmlDeviceGetNvLinkState");
  optional(api, api.link_remote_pci, "nvmlDeviceGetNvLinkRemotePciInfo_v2");
  optional(api, api.link_remote_type, "nvmlDeviceGetNvLinkRemoteDeviceType");
  optional(api, api.common_ancestor, "nvmlDeviceGetTopologyCommonAncestor");
}

}  // namespace

std::string Api::text(int status) const {
  return fmt::format("{} ({})", error_text ? error_text(status) : "error", status);
}

void Api::check(int status, const char* call) const {
  if (status != kSuccess) fail(GSEL_ERR_IO, "NVML: {} failed: {}", call, text(status));
}

void open_api(Api& api) {
  const char* other = secure_getenv("GSEL_NVML_LIBRARY");
  if (other && other[0] != '/') fail(GSEL_ERR_ARG, "GSEL_NVML_LIBRARY={}: an absolute path is needed", other);
  api.name = other ? other : "libnvidia-ml.so.1";
  api.library.reset(dlopen(api.name.c_str(), RTLD_NOW | RTLD_LOCAL));
  if (!api.library && other) {
    const char* why = dlerror();
    fail(GSEL_ERR_IO, "GSEL_NVML_LIBRARY={} cannot be opened: {}", other, why ? why : "unknown");
  }
  if (api.library) find_symbols(api);
}

}  // namespace gsel::nvml

namespace gsel {
namespace {

using nvml::Api;
using nvml::Handle;

// ---- links ----------------------------------------------------------------------------------------------------------
// Active NVLinks are counted by their other end: another device of the list, or a switch, which connects every two
// devices with links to one.

struct NvmlDevice {
  Handle* handle;
  std::string pci;
};

constexpr unsigned kMaxLinks = 36;  // more than any generation has (NVML_NVLINK_MAX_LINKS)

struct Ends {
  std::map<std::string, int> direct;  // by bus address of the other end
  int to_switches = 0;
};

bool to_switch(const Api& api, Handle* handle, unsigned link) {
  unsigned type = 0;
  return api.link_remote_type && api.link_remote_type(handle, link, &type) == nvml::kSuccess &&
         type == nvml::kRemoteSwitch;
}

Ends nvlinks_of(const Api& api, Handle* handle) {
  Ends ends;
  if (!api.link_state || !api.link_remote_pci) return ends;
  for (unsigned link = 0; link < kMaxLinks; ++link) {
    unsigned active = 0;
    if (api.link_state(handle, link, &active) != nvml::kSuccess) return ends;  // no such link, so no further ones
    if (!active) continue;
    nvml::Pci remote{};
    if (to_switch(api, handle, link))
      ++ends.to_switches;
    else if (api.link_remote_pci(handle, link, &remote) == nvml::kSuccess)
      ++ends.direct[normalise_pci(remote.id)];
  }
  return ends;
}

int nvlinks_between(const Ends& a, const Ends& b, const std::string& pci_of_b) {
  const auto direct = a.direct.find(pci_of_b);
  return direct != a.direct.end() ? direct->second : std::min(a.to_switches, b.to_switches);
}

// The level of the common ancestor (NVML API reference, nvmlGpuTopologyLevel_t).
const char* pci_way(const Api& api, Handle* a, Handle* b) {
  unsigned level = 0;
  if (!api.common_ancestor || api.common_ancestor(a, b, &level) != nvml::kSuccess) return nullptr;
  switch (level) {
    case 0:  // two devices of one board
    case 10:
      return "PIX";
    case 20:
      return "PXB";
    case 30:
      return "PHB";
    case 40:
      return "NODE";
    case 50:
      return "SYS";
    default:
      return nullptr;
  }
}

// The links between devices of one host: NVLinks if there are any, else the PCI path in the notation of nvidia-smi
// topo. Unknown links are omitted.
void find_nvml_links(const Api& api, const std::vector<NvmlDevice>& devices, Found& found) {
  if (devices.size() < 2) return;
  std::vector<Ends> ends;
  for (const NvmlDevice& device : devices) ends.push_back(nvlinks_of(api, device.handle));
  for (size_t i = 0; i < devices.size(); ++i)
    for (size_t j = i + 1; j < devices.size(); ++j) {
      const int count = nvlinks_between(ends[i], ends[j], devices[j].pci);
      const char* way = count ? nullptr : pci_way(api, devices[i].handle, devices[j].handle);
      if (!count && !way) continue;
      found.links.push_back({devices[i].pci, devices[j].pci, count ? fmt::format("NV{}", count) : way, 0, 0});
    }
}

// ---- devices --------------------------------------------------------------------------------------------------------

// NVML returns the number of cores; cores per multiprocessor follow from the compute capability (CUDA programming
// guide, table of arithmetic throughput, 32-bit floating point).
int32_t multiprocessors(unsigned cores, int major, int minor) {
  if (major == 3) return static_cast<int32_t>(cores / 192);
  const bool small = major == 7 || (major == 6 && minor == 0) || (major == 8 && minor == 0);
  return static_cast<int32_t>(cores / (small ? 64 : 128));
}

int32_t process_count(const Api& api, Handle* handle) {
  if (!api.device_processes) return -1;
  unsigned count = 0;  // without room for entries the call returns their number
  const int status = api.device_processes(handle, &count, nullptr);
  return status == nvml::kSuccess || status == nvml::kInsufficientSize ? static_cast<int32_t>(count) : -1;
}

// Exclusive-thread (1) is an old name of exclusive-process.
ComputeMode compute_mode(const Api& api, Handle* handle) {
  unsigned mode = 0;
  if (!api.device_compute_mode || api.device_compute_mode(handle, &mode) != nvml::kSuccess) return {};
  return mode == 2 ? ComputeMode::prohibited : mode == 0 ? ComputeMode::standard : ComputeMode::exclusive_process;
}

int64_t clock_khz(const Api& api, Handle* handle) {
  unsigned mhz = 0;
  const bool told = api.device_max_clock && api.device_max_clock(handle, nvml::kClockSm, &mhz) == nvml::kSuccess;
  return told ? int64_t{mhz} * 1000 : 0;
}

std::string uuid_of(const Api& api, Handle* handle) {
  char text[nvml::kTextBytes] = "";
  api.check(api.device_uuid(handle, text, nvml::kTextBytes), "nvmlDeviceGetUUID");
  return text;
}

// Zeros where NVML does not say: the device shares the host's memory, or is divided and seen from within a container.
nvml::Memory device_memory(const Api& api, Handle* handle) {
  nvml::Memory memory{};
  const int status = api.device_memory(handle, &memory);
  if (status == nvml::kNotSupported || status == nvml::kNoPermission) return {};
  api.check(status, "nvmlDeviceGetMemoryInfo");
  return memory;
}

Device describe(const Api& api, Handle* handle, const FileTree& files) {
  Device device;
  device.vendor = "nvidia";
  char name[nvml::kTextBytes] = "";
  api.check(api.device_name(handle, name, nvml::kTextBytes), "nvmlDeviceGetName");
  device.name = name;
  device.uuid = uuid_of(api, handle);
  nvml::Pci pci{};
  api.check(api.device_pci(handle, &pci), "nvmlDeviceGetPciInfo_v3");
  device.pci = normalise_pci(pci.id);
  if (device.pci.empty()) fail(GSEL_ERR_IO, "NVML: nvmlDeviceGetPciInfo_v3 gave \"{}\", no PCI address", pci.id);
  const nvml::Memory memory = device_memory(api, handle);
  device.memory_bytes = memory.total;
  device.free_bytes = std::min(memory.free, memory.total);
  api.check(api.device_capability(handle, &device.capability_major, &device.capability_minor),
            "nvmlDeviceGetCudaComputeCapability");
  unsigned cores = 0;
  if (api.device_cores && api.device_cores(handle, &cores) == nvml::kSuccess)
    device.compute_units = multiprocessors(cores, device.capability_major, device.capability_minor);
  device.clock_khz = clock_khz(api, handle);
  device.compute_mode = compute_mode(api, handle);
  device.process_count = process_count(api, handle);
  device.integrated = known_accelerator("nvidia", device.name).integrated;
  device.numa = pci_numa(files, device.pci);
  return device;
}

Partition describe_partition(const Api& api, Handle* handle) {
  Partition partition;
  partition.uuid = uuid_of(api, handle);
  unsigned id = 0;
  if (api.mig_gi && api.mig_gi(handle, &id) == nvml::kSuccess) partition.gi = static_cast<int32_t>(id);
  if (api.mig_ci && api.mig_ci(handle, &id) == nvml::kSuccess) partition.ci = static_cast<int32_t>(id);
  partition.memory_bytes = device_memory(api, handle).total;
  return partition;
}

// The instances of a device in MIG mode. The driver's list has empty entries, and instances that this user may not see.
void describe_partitions(const Api& api, Handle* handle, Device& device, Found& found) {
  unsigned current = 0, pending = 0;
  if (!api.mig_mode || api.mig_mode(handle, &current, &pending) != nvml::kSuccess || current != 1) return;
  device.divided = true;
  unsigned places = 0, hidden = 0;
  if (api.mig_count && api.mig_at) api.check(api.mig_count(handle, &places), "nvmlDeviceGetMaxMigDeviceCount");
  for (unsigned i = 0; i < places; ++i) {
    Handle* instance = nullptr;
    const int status = api.mig_at(handle, i, &instance);
    if (status == nvml::kNotFound) continue;
    hidden += status == nvml::kNoPermission;
    if (status == nvml::kNoPermission) continue;
    api.check(status, "nvmlDeviceGetMigDeviceHandleByIndex");
    device.partitions.push_back(describe_partition(api, instance));
  }
  if (hidden)
    found.notes.push_back(
        fmt::format("NVML: {} of {} may not be used by this user", with_noun(hidden, "MIG instance"), device.uuid));
  else if (device.partitions.empty())
    found.notes.push_back(fmt::format("NVML: {} is in MIG mode and has no instances: it cannot be used", device.uuid));
}

// Adds devices that NVML refused, if the kernel driver's list identifies them.
void add_refused(const FileTree& files, const std::vector<unsigned>& refused, Found& found) {
  std::vector<Device> others = nvidia_driver_devices(files);
  std::erase_if(others, [&](const Device& device) {
    return std::any_of(found.devices.begin(), found.devices.end(),
                       [&](const Device& seen) { return seen.pci == device.pci; });
  });
  if (others.size() != refused.size()) {
    for (const unsigned index : refused)
      found.notes.push_back(fmt::format("NVML: device {} may not be used by this user", index));
    return;
  }
  for (Device& device : others) {
    found.notes.push_back(fmt::format("NVML: {} may not be used by this user", device.pci));
    device.accessible = false;
    found.devices.push_back(std::move(device));
  }
}

void list_devices(const Api& api, const FileTree& files, Found& found) {
  unsigned count = 0;
  api.check(api.device_count(&count), "nvmlDeviceGetCount_v2");
  std::vector<NvmlDevice> handles;
  std::vector<unsigned> refused;
  for (unsigned i = 0; i < count; ++i) {
    Handle* handle = nullptr;
    const int status = api.device_at(i, &handle);
    if (status == nvml::kNoPermission) {
      refused.push_back(i);
      continue;
    }
    api.check(status, "nvmlDeviceGetHandleByIndex_v2");
    Device device = describe(api, handle, files);
    describe_partitions(api, handle, device, found);
    handles.push_back({handle, device.pci});
    found.devices.push_back(std::move(device));
  }
  if (!refused.empty()) add_refused(files, refused, found);
  if (count == 0) found.notes.push_back("NVML: the driver lists no NVIDIA devices");
  find_nvml_links(api, handles, found);
}

}  // namespace

bool probe_nvml(const FileTree& files, Found& found) {
  if (files.recorded() && !secure_getenv("GSEL_NVML_LIBRARY")) return false;
  Api api;
  nvml::open_api(api);
  if (!api.library) {
    found.notes.push_back(fmt::format("NVML: {} not found: no NVIDIA devices", api.name));
    return false;
  }
  const int status = api.init();
  if (status == nvml::kDriverNotLoaded) {
    found.notes.push_back("NVML: the NVIDIA driver is not loaded: no NVIDIA devices");
    return false;
  }
  api.check(status, "nvmlInit_v2");
  struct Session {
    const Api& api;
    ~Session() { api.shutdown(); }
  } session{api};
  list_devices(api, files, found);
  return true;
}

}  // namespace gsel
