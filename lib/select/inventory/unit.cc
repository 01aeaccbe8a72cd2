// select/inventory/unit.cc: see unit.h.
#include "select/inventory/unit.h"

#include <fmt/format.h>

namespace gsel {

std::vector<Unit> units_of(const Group& group) {
  std::vector<Unit> out;
  out.reserve(group.size());
  for (size_t place = 0; place < group.size(); ++place) {
    const Device& device = group.at(place);
    if (!device.divided) out.push_back({group.devices[place], -1, -1});
    for (size_t p = 0; p < device.partitions.size(); ++p)
      out.push_back({group.devices[place], static_cast<int32_t>(p), -1});
  }
  return out;
}

bool has_accelerators(const Inventory& inventory, int32_t host) {
  const Host& of = inventory.hosts[static_cast<size_t>(host)];
  for (int32_t i = of.first; i < of.first + of.count; ++i)
    if (!inventory.devices[static_cast<size_t>(i)].is_cpu()) return true;
  return false;
}

std::string unit_text(const Inventory& inventory, const Unit& unit) {
  const Device& device = inventory.devices[static_cast<size_t>(unit.device)];
  std::string text = inventory.hosts.size() > 1
                         ? fmt::format("device {} of {}", device.index, inventory.host_of(device).name)
                         : fmt::format("device {}", device.index);
  if (unit.tile >= 0) return fmt::format("tile {} of {}", unit.tile, text);
  if (unit.partition >= 0) return fmt::format("instance {} of {} ({})", unit.partition, text, uuid_of(inventory, unit));
  const std::string& identity = device.uuid.empty() ? device.pci.empty() ? device.name : device.pci : device.uuid;
  return fmt::format("{} ({})", text, identity);
}

uint64_t memory_of(const Device& device, const Unit& unit) {
  return unit.partition < 0 ? device.memory_bytes : device.partitions[static_cast<size_t>(unit.partition)].memory_bytes;
}

uint64_t free_of(const Device& device, const Unit& unit) {
  return unit.partition < 0 ? device.free_bytes : memory_of(device, unit);
}

const std::string& uuid_of(const Inventory& inventory, const Unit& unit) {
  const Device& device = inventory.devices[static_cast<size_t>(unit.device)];
  return unit.partition < 0 ? device.uuid : device.partitions[static_cast<size_t>(unit.partition)].uuid;
}

}  // namespace gsel
