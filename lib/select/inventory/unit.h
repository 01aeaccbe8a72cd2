// select/inventory/unit.h: a unit: something a program can be given, a whole device or a part of one.
#pragma once

#include <string>

#include "select/inventory/inventory.h"

namespace gsel {

struct Unit {
  int32_t device = -1;     // in Inventory::devices
  int32_t partition = -1;  // in Device::partitions (MIG), -1: no partition
  int32_t tile = -1;       // of an Intel card, -1: all tiles

  friend bool operator==(const Unit&, const Unit&) = default;
  friend auto operator<=>(const Unit&, const Unit&) = default;
};

inline const Device& device_of(const Inventory& inventory, const Unit& unit) {
  return inventory.devices[static_cast<size_t>(unit.device)];
}

// The devices of one vendor on one host, in bus order.
struct Group {
  const Inventory& inventory;
  int32_t host = 0;
  std::vector<int32_t> devices;  // in Inventory::devices

  size_t size() const { return devices.size(); }
  const Device& at(size_t place) const { return inventory.devices[static_cast<size_t>(devices[place])]; }
};

// The units of a group that a program sees, in its order.
struct Visible {
  std::vector<Unit> units;
  std::string hidden_by;  // why the others are not seen, such as "hidden by CUDA_VISIBLE_DEVICES=0,1"
};

// Every unit of a group: a divided device's partitions, other devices whole.
std::vector<Unit> units_of(const Group& group);

bool has_accelerators(const Inventory& inventory, int32_t host);

// "device 2 (GPU-c4f82fda...)", "MIG-... of device 2", "tile 1 of device 0".
std::string unit_text(const Inventory& inventory, const Unit& unit);

// Memory of the unit: of an instance, or of the device. The free memory of an instance is unknown, since its device's
// figure counts the other instances too: free_of returns all of its memory.
uint64_t memory_of(const Device& device, const Unit& unit);
uint64_t free_of(const Device& device, const Unit& unit);

// The identity to give to a program: the partition's uuid, or the device's.
const std::string& uuid_of(const Inventory& inventory, const Unit& unit);

}  // namespace gsel
