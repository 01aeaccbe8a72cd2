// select/probe/nvml_links.cc: see nvml_api.h. Active NVLinks are counted by their other end: another device of the
// list, or a switch, which connects every two devices with links to one.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "select/probe/nvml_api.h"

namespace gsel {
namespace {

using nvml::Api;
using nvml::Handle;

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

}  // namespace

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

}  // namespace gsel
