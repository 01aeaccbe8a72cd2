// select/probe/nvml_api.cc: see nvml_api.h.
#include "select/probe/nvml_api.h"

#include <cstdlib>

#include "base/error.h"

namespace gsel::nvml {
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
