// select/probe/ascend.cc: Ascend devices by their PCI ids, from files, and their logical id, name and memory by DCMI.
// Without DCMI, memory is nominal, and the driver's logical ids are known only if there is one device. Source: Huawei's
// list of Ascend PCI device ids.
#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "select/probe/library.h"
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

// ---- DCMI -----------------------------------------------------------------------------------------------------------
// The library is opened at run time, and only if there are such devices. This file declares what it uses. Source:
// Huawei DCMI API reference.

namespace {

constexpr int kMaxCards = 64;

struct PcieInfo {
  unsigned vendor, subvendor, device_id, subdevice;
  int domain;
  unsigned bus, device, function;
  unsigned char reserved[32];
};
struct ChipInfo {
  char type[32], name[32], version[32];
  unsigned cores;
};
struct HbmInfo {
  unsigned long long megabytes;
  unsigned megahertz;
  unsigned long long megabytes_used;
  int temperature;
  unsigned utilisation;
  unsigned long long room[8];  // newer versions may write more
};

struct Dcmi {
  int (*init)() = nullptr;
  int (*cards)(int*, int*, int) = nullptr;
  int (*devices)(int, int*) = nullptr;
  int (*pcie)(int, int, PcieInfo*) = nullptr;
  int (*logical_id)(int*, int, int) = nullptr;
  int (*chip)(int, int, ChipInfo*) = nullptr;
  int (*hbm)(int, int, HbmInfo*) = nullptr;
};

bool open_dcmi(const FileTree& files, Dcmi& dcmi) {
  const Library library(files, "GSEL_DCMI_LIBRARY", {"libdcmi.so", "/usr/local/dcmi/libdcmi.so"});
  return library.find(dcmi.init, "dcmi_init") && library.find(dcmi.cards, "dcmi_get_card_num_list") &&
         library.find(dcmi.devices, "dcmi_get_device_num_in_card") &&
         library.find(dcmi.pcie, "dcmi_get_device_pcie_info_v2") &&
         library.find(dcmi.logical_id, "dcmi_get_device_logic_id") &&
         library.find(dcmi.chip, "dcmi_get_device_chip_info") && library.find(dcmi.hbm, "dcmi_get_device_hbm_info");
}

// "910B3" becomes "Ascend 910B3", the name that npu-smi and the maker use.
void learn_by_dcmi(const Dcmi& dcmi, int card, int chip, Device& device) {
  int logical = -1;
  if (dcmi.logical_id(&logical, card, chip) == 0 && logical >= 0) device.ordinal = logical;
  ChipInfo info{};
  if (dcmi.chip(card, chip, &info) == 0) {
    info.name[sizeof info.name - 1] = '\0';
    if (info.name[0]) device.name = fmt::format("Ascend {}", info.name);
    device.compute_units = static_cast<int32_t>(std::min(info.cores, 1u << 20));
  }
  HbmInfo hbm{};
  if (dcmi.hbm(card, chip, &hbm) == 0 && hbm.megabytes > 0 && hbm.megabytes < 1ull << 40) {
    device.memory_bytes = hbm.megabytes << 20;
    device.free_bytes = device.memory_bytes - (std::min(hbm.megabytes_used, hbm.megabytes) << 20);
  }
  fill_from_product(device);
}

void learn_card(const Dcmi& dcmi, int card, Found& found) {
  int chips = 0;
  if (dcmi.devices(card, &chips) != 0) return;
  for (int chip = 0; chip < std::min(chips, kMaxCards); ++chip) {
    PcieInfo at{};
    if (dcmi.pcie(card, chip, &at) != 0) continue;
    const std::string pci = fmt::format("{:08x}:{:02x}:{:02x}.{:x}", static_cast<unsigned>(at.domain), at.bus & 0xff,
                                        at.device & 0x1f, at.function & 0x7);
    for (Device& device : found.devices)
      if (device.pci == pci) learn_by_dcmi(dcmi, card, chip, device);
  }
}

}  // namespace

void ask_dcmi(const FileTree& files, Found& found) {
  Dcmi dcmi;
  if (found.devices.empty()) return;
  int count = 0, cards[kMaxCards] = {};
  if (!open_dcmi(files, dcmi) || dcmi.init() != 0 || dcmi.cards(&count, cards, kMaxCards) != 0) {
    found.notes.push_back("Ascend: DCMI is not available: logical ids are not told, memory is nominal");
    return;
  }
  for (int i = 0; i < std::clamp(count, 0, kMaxCards); ++i) learn_card(dcmi, cards[i], found);
}

}  // namespace gsel
