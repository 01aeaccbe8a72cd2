// select/probe/nvml_links.h: the links between NVIDIA devices of one host.
#pragma once

#include <string>
#include <vector>

#include "select/probe/nvml_api.h"
#include "select/probe/probes.h"

namespace gsel {

struct NvmlDevice {
  nvml::Handle* handle;
  std::string pci;
};

// NVLinks where there are any, else the way over PCI, as nvidia-smi topo names it. What is not told is left out.
void find_nvml_links(const nvml::Api& api, const std::vector<NvmlDevice>& devices, Found& found);

}  // namespace gsel
