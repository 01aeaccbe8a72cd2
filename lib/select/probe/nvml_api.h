// select/probe/nvml_api.h: the NVML functions in use, found at run time, so that no NVIDIA header is needed.
// nvml_links.cc reads the links between devices, nvml.cc everything else. Source: NVML API reference; struct layouts
// are those of functions with _v2 and _v3, which do not change.
#pragma once

#include <dlfcn.h>

#include <memory>
#include <string>
#include <vector>

#include "select/probe/probes.h"

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

}  // namespace gsel::nvml

namespace gsel {

struct NvmlDevice {
  nvml::Handle* handle;
  std::string pci;
};

// The links between devices of one host: NVLinks if there are any, else the PCI path in the notation of nvidia-smi
// topo. Unknown links are omitted.
void find_nvml_links(const nvml::Api& api, const std::vector<NvmlDevice>& devices, Found& found);

}  // namespace gsel
