// select/probe/ascend.cc: Ascend devices by their PCI ids, from files only. Does not know DCMI, which dcmi.cc uses;
// without DCMI, memory is nominal, and the driver's logical ids are known only if there is one device. Source: Huawei's
// list of Ascend PCI device ids.
#include <fmt/format.h>

#include "base/text.h"
#include "select/probe/probes.h"

namespace gsel {
namespace {

constexpr int64_t kHuawei = 0x19e5;

constexpr struct {
  int64_t id;
  const char* name;
} kNames[] = {{0xd100, "Ascend 310"},
              {0xd500, "Ascend 310P"},
              {0xd801, "Ascend 910"},
              {0xd802, "Ascend 910B"},
              {0xd803, "Ascend 910C"}};

}  // namespace

void probe_ascend(const FileTree& files, Found& found) {
  for (const PciFunction& function : pci_functions(files, kHuawei))
    for (const auto& row : kNames) {
      if (row.id != function.device_id) continue;
      Device device;
      device.vendor = "ascend";
      device.pci = function.pci;
      device.name = row.name;
      device.numa = pci_numa(files, function.pci);
      fill_from_product(device);
      found.devices.push_back(std::move(device));
    }
  if (found.devices.empty()) return;
  const size_t nodes = files.numbered("/dev", "davinci").size();
  if (found.devices.size() == 1) found.devices[0].ordinal = 0;
  if (nodes >= found.devices.size()) return;
  for (Device& device : found.devices) device.accessible = nodes > 0;
  found.notes.push_back(fmt::format("Ascend: {} on the bus, {} in /dev; which of them may be used is not told by files",
                                    with_noun(found.devices.size(), "device"), nodes));
}

}  // namespace gsel
