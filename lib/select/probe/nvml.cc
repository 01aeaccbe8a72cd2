// select/probe/nvml.cc: NVIDIA devices through NVML, which ignores every mask, starts no context and is safe before
// fork.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "base/error.h"
#include "base/text.h"
#include "select/inventory/known.h"
#include "select/probe/nvml_api.h"
#include "select/probe/probes.h"

namespace gsel {
namespace {

using nvml::Api;
using nvml::Handle;

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
