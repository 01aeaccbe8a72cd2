// select/probe/drm.cc: Intel graphics devices of the kernel's DRM, which no mask affects. Does not know Level Zero,
// which sysman.cc uses. Source: sysfs pages of i915 and xe; device ids from Intel's list of graphics PCI ids.
#include <fmt/format.h>

#include <algorithm>

#include "select/probe/probes.h"

namespace gsel {
namespace {

constexpr int64_t kIntel = 0x8086;
constexpr int64_t kDisplay = 0x03;

constexpr struct {
  int64_t id;
  const char* name;
} kIntelNames[] = {
    {0x0bd5, "Intel Data Center GPU Max 1550"}, {0x0bd6, "Intel Data Center GPU Max 1550"},
    {0x0bd9, "Intel Data Center GPU Max 1100"}, {0x0bda, "Intel Data Center GPU Max 1100"},
    {0x0bdb, "Intel Data Center GPU Max 1100"}, {0x56c0, "Intel Data Center GPU Flex 170"},
    {0x56c1, "Intel Data Center GPU Flex 140"}, {0x56a0, "Intel Arc A770 Graphics"},
    {0x56a1, "Intel Arc A750 Graphics"},        {0x56a2, "Intel Arc A580 Graphics"},
    {0x56a5, "Intel Arc A380 Graphics"},        {0x56a6, "Intel Arc A310 Graphics"},
    {0xe20b, "Intel Arc B580 Graphics"},        {0xe20c, "Intel Arc B570 Graphics"},
    {0xe211, "Intel Arc Pro B60 Graphics"},     {0xe212, "Intel Arc Pro B50 Graphics"},
    {0x46a6, "Intel Iris Xe Graphics"},         {0x9a49, "Intel Iris Xe Graphics"},
    {0xa7a0, "Intel Iris Xe Graphics"},
};

std::string name_of(int64_t id) {
  for (const auto& row : kIntelNames)
    if (row.id == id) return row.name;
  return fmt::format("Intel graphics device {:04x}", id);
}

// xe has a folder for each tile; i915 has one for each graphics unit, which on an integrated device is not a tile.
int32_t tiles_of(const FileTree& files, const std::string& card, bool integrated) {
  size_t tiles = files.numbered(card + "/device", "tile").size();
  if (tiles == 0 && !integrated) tiles = files.numbered(card + "/gt", "gt").size();
  return static_cast<int32_t>(std::min<size_t>(tiles, 64));
}

uint64_t memory_of(const FileTree& files, const std::string& card) {
  uint64_t bytes = 0;
  for (const std::string& tile : files.numbered(card + "/device", "tile"))
    bytes += static_cast<uint64_t>(std::max<int64_t>(
        files.number(fmt::format("{}/device/{}/physical_vram_size_bytes", card, tile)).value_or(0), 0));
  for (const char* file : {"/lmem_total_bytes", "/prelim_lmem_total_bytes"})
    if (!bytes) bytes = static_cast<uint64_t>(std::max<int64_t>(files.number(card + file).value_or(0), 0));
  return bytes;
}

bool may_use(const FileTree& files, const std::string& card) {
  const std::vector<std::string> renders = files.numbered(card + "/device/drm", "renderD");
  return std::any_of(renders.begin(), renders.end(),
                     [&](const std::string& render) { return files.usable("/dev/dri/" + render); });
}

Device describe_card(const FileTree& files, const std::string& card, const std::string& pci) {
  Device device;
  device.vendor = "intel";
  device.pci = pci;
  device.name = name_of(files.number(card + "/device/device").value_or(0));
  device.integrated = pci.compare(8, 4, ":00:") == 0;  // on the processor's own bus
  device.tiles = tiles_of(files, card, device.integrated);
  device.memory_bytes = memory_of(files, card);
  device.numa = pci_numa(files, pci);
  device.accessible = may_use(files, card);
  fill_from_product(device);
  return device;
}

// Level Zero lists discrete devices before integrated ones, each kind by bus address (compute-runtime).
void number(std::vector<Device>& devices) {
  std::vector<Device*> order;
  for (Device& device : devices) order.push_back(&device);
  std::sort(order.begin(), order.end(), [](const Device* a, const Device* b) {
    return std::pair(a->integrated, a->pci) < std::pair(b->integrated, b->pci);
  });
  for (size_t i = 0; i < order.size(); ++i) order[i]->ordinal = static_cast<int32_t>(i);
}

}  // namespace

void probe_drm(const FileTree& files, Found& found) {
  for (const std::string& name : files.numbered("/sys/class/drm", "card")) {
    const std::string card = "/sys/class/drm/" + name;
    if (files.number(card + "/device/vendor") != kIntel) continue;
    if (files.number(card + "/device/class").value_or(0) >> 16 != kDisplay) continue;
    const auto fields = files.fields(card + "/device/uevent", '=');
    const auto slot = fields.find("PCI_SLOT_NAME");
    const std::string pci = slot == fields.end() ? "" : normalise_pci(slot->second);
    if (!pci.empty()) found.devices.push_back(describe_card(files, card, pci));
  }
  number(found.devices);
  for (const Device& device : found.devices)
    if (!device.accessible) found.notes.push_back(fmt::format("DRM: {} may not be used by this user", device.pci));
}

}  // namespace gsel
