// select/probe/nvml.cc: NVIDIA devices through NVML, opened at run time. NVML ignores every mask, starts no context
// and is safe before fork. Its declarations stand here, as far as they are used, so that no NVIDIA header is needed.
// Source: NVML API reference, functions named below; layouts are those of the _v2 and _v3 names and do not change.
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "base/error.h"
#include "select/probe/probes.h"

namespace gsel {
namespace {

constexpr int kSuccess = 0, kNotSupported = 3, kNoPermission = 4, kInsufficientSize = 7, kDriverNotLoaded = 9;
constexpr unsigned kTextBytes = 96;

struct NvmlDevice;
struct NvmlPci {
  char legacy_id[16];
  unsigned domain, bus, device, device_id, subsystem_id;
  char id[32];
};
struct NvmlMemory {
  unsigned long long total, free, used;
};

struct Nvml {
  std::string name;
  std::unique_ptr<void, int (*)(void*)> library{nullptr, dlclose};
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*device_count)(unsigned*) = nullptr;
  int (*device_at)(unsigned, NvmlDevice**) = nullptr;
  int (*device_name)(NvmlDevice*, char*, unsigned) = nullptr;
  int (*device_uuid)(NvmlDevice*, char*, unsigned) = nullptr;
  int (*device_pci)(NvmlDevice*, NvmlPci*) = nullptr;
  int (*device_memory)(NvmlDevice*, NvmlMemory*) = nullptr;
  int (*device_capability)(NvmlDevice*, int*, int*) = nullptr;
  // Not in every driver:
  const char* (*error_text)(int) = nullptr;
  int (*device_cores)(NvmlDevice*, unsigned*) = nullptr;
  int (*device_processes)(NvmlDevice*, unsigned*, void*) = nullptr;
  int (*device_mig)(NvmlDevice*, unsigned*, unsigned*) = nullptr;

  template <class F>
  void optional(F& function, const char* symbol) {
    if (!function) function = reinterpret_cast<F>(dlsym(library.get(), symbol));
  }
  template <class F>
  void needed(F& function, const char* symbol) {
    optional(function, symbol);
    if (!function) fail(GSEL_ERR_IO, "NVML: {} has no {}; a newer NVIDIA driver is needed", name, symbol);
  }
  std::string text(int status) const {
    return fmt::format("{} ({})", error_text ? error_text(status) : "error", status);
  }
  void check(int status, const char* call) const {
    if (status != kSuccess) fail(GSEL_ERR_IO, "NVML: {} failed: {}", call, text(status));
  }
};

// False when there is no NVML here, which is normal. Tests name another library by GSEL_NVML_LIBRARY.
bool open_library(Nvml& nvml) {
  const char* other = secure_getenv("GSEL_NVML_LIBRARY");
  if (other && other[0] != '/') fail(GSEL_ERR_ARG, "GSEL_NVML_LIBRARY={}: an absolute path is needed", other);
  nvml.name = other ? other : "libnvidia-ml.so.1";
  nvml.library.reset(dlopen(nvml.name.c_str(), RTLD_NOW | RTLD_LOCAL));
  if (!nvml.library && other) {
    const char* why = dlerror();
    fail(GSEL_ERR_IO, "GSEL_NVML_LIBRARY={} cannot be opened: {}", other, why ? why : "unknown");
  }
  return nvml.library != nullptr;
}

void find_symbols(Nvml& nvml) {
  nvml.needed(nvml.init, "nvmlInit_v2");
  nvml.needed(nvml.shutdown, "nvmlShutdown");
  nvml.needed(nvml.device_count, "nvmlDeviceGetCount_v2");
  nvml.needed(nvml.device_at, "nvmlDeviceGetHandleByIndex_v2");
  nvml.needed(nvml.device_name, "nvmlDeviceGetName");
  nvml.needed(nvml.device_uuid, "nvmlDeviceGetUUID");
  nvml.needed(nvml.device_pci, "nvmlDeviceGetPciInfo_v3");
  nvml.needed(nvml.device_memory, "nvmlDeviceGetMemoryInfo");
  nvml.needed(nvml.device_capability, "nvmlDeviceGetCudaComputeCapability");
  nvml.optional(nvml.error_text, "nvmlErrorString");
  nvml.optional(nvml.device_cores, "nvmlDeviceGetNumGpuCores");
  nvml.optional(nvml.device_mig, "nvmlDeviceGetMigMode");
  for (const char* symbol : {"nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2",
                             "nvmlDeviceGetComputeRunningProcesses"})
    nvml.optional(nvml.device_processes, symbol);
}

// NVML tells cores; cores per multiprocessor follow from the compute capability (CUDA programming guide, table of
// arithmetic throughput, 32-bit floating point).
int32_t multiprocessors(unsigned cores, int major, int minor) {
  if (major == 3) return static_cast<int32_t>(cores / 192);
  const bool small = major == 7 || (major == 6 && minor == 0) || (major == 8 && minor == 0);
  return static_cast<int32_t>(cores / (small ? 64 : 128));
}

int32_t numa_of(const std::string& pci) {
  const std::string path = fmt::format("/sys/bus/pci/devices/{}/numa_node", pci.substr(4));
  std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path.c_str(), "re"), std::fclose);
  int node = -1;
  return file && std::fscanf(file.get(), "%d", &node) == 1 ? node : -1;
}

int32_t process_count(const Nvml& nvml, NvmlDevice* handle) {
  if (!nvml.device_processes) return -1;
  unsigned count = 0;  // with no room the call answers how many there are
  const int status = nvml.device_processes(handle, &count, nullptr);
  return status == kSuccess || status == kInsufficientSize ? static_cast<int32_t>(count) : -1;
}

Device describe(const Nvml& nvml, NvmlDevice* handle) {
  Device device;
  device.vendor = "nvidia";
  char text[kTextBytes] = "";
  nvml.check(nvml.device_name(handle, text, kTextBytes), "nvmlDeviceGetName");
  device.name = text;
  nvml.check(nvml.device_uuid(handle, text, kTextBytes), "nvmlDeviceGetUUID");
  device.uuid = text;
  NvmlPci pci{};
  nvml.check(nvml.device_pci(handle, &pci), "nvmlDeviceGetPciInfo_v3");
  device.pci = normalise_pci(pci.id);
  if (device.pci.empty()) fail(GSEL_ERR_IO, "NVML: nvmlDeviceGetPciInfo_v3 gave \"{}\", no PCI address", pci.id);
  NvmlMemory memory{};
  const int status = nvml.device_memory(handle, &memory);  // not told where the device shares the host's memory
  if (status != kNotSupported) nvml.check(status, "nvmlDeviceGetMemoryInfo");
  device.memory_bytes = memory.total;
  device.free_bytes = memory.free;
  nvml.check(nvml.device_capability(handle, &device.capability_major, &device.capability_minor),
             "nvmlDeviceGetCudaComputeCapability");
  unsigned cores = 0;
  if (nvml.device_cores && nvml.device_cores(handle, &cores) == kSuccess)
    device.compute_units = multiprocessors(cores, device.capability_major, device.capability_minor);
  device.process_count = process_count(nvml, handle);
  device.numa = numa_of(device.pci);
  return device;
}

void note_mig(const Nvml& nvml, NvmlDevice* handle, const Device& device, Inventory& inventory) {
  unsigned current = 0, pending = 0;
  if (nvml.device_mig && nvml.device_mig(handle, &current, &pending) == kSuccess && current == 1)
    inventory.notes.push_back(
        fmt::format("NVML: {} is divided by MIG; its instances are not listed, and CUDA uses the first", device.uuid));
}

void list_devices(const Nvml& nvml, Inventory& inventory) {
  unsigned count = 0;
  nvml.check(nvml.device_count(&count), "nvmlDeviceGetCount_v2");
  for (unsigned i = 0; i < count; ++i) {
    NvmlDevice* handle = nullptr;
    const int status = nvml.device_at(i, &handle);
    if (status == kNoPermission) {
      inventory.notes.push_back(fmt::format("NVML: device {} may not be used by this user", i));
      continue;
    }
    nvml.check(status, "nvmlDeviceGetHandleByIndex_v2");
    inventory.devices.push_back(describe(nvml, handle));
    note_mig(nvml, handle, inventory.devices.back(), inventory);
  }
  if (count == 0) inventory.notes.push_back("NVML: the driver lists no NVIDIA devices");
}

}  // namespace

void probe_nvml(Inventory& inventory) {
  Nvml nvml;
  if (!open_library(nvml)) {
    inventory.notes.push_back(fmt::format("NVML: {} not found: no NVIDIA devices", nvml.name));
    return;
  }
  find_symbols(nvml);
  const int status = nvml.init();
  if (status == kDriverNotLoaded) {
    inventory.notes.push_back("NVML: the NVIDIA driver is not loaded: no NVIDIA devices");
    return;
  }
  nvml.check(status, "nvmlInit_v2");
  struct Session {
    const Nvml& nvml;
    ~Session() { nvml.shutdown(); }
  } session{nvml};
  list_devices(nvml, inventory);
  std::sort(inventory.devices.begin(), inventory.devices.end(),
            [](const Device& a, const Device& b) { return a.pci < b.pci; });
}

}  // namespace gsel
