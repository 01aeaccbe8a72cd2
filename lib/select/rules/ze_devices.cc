// select/rules/ze_devices.cc: see ze_devices.h.
// Sources: Level Zero specification, "Device Hierarchy" and "Affinity Mask"; intel/compute-runtime,
// shared/source/execution_environment/execution_environment.cpp.
#include "select/rules/ze_devices.h"

#include <algorithm>

#include "select/words/tokens.h"

namespace gsel {
namespace {

bool is_xe_hpc(const Device& device) {
  const std::string architecture = lower_case(device.architecture), name = lower_case(device.name);
  return architecture == "xe-hpc" || architecture == "xe_hpc" || architecture == "pvc" ||
         name.find("data center gpu max") != name.npos || name.find("ponte vecchio") != name.npos;
}

size_t tile_count(const Device& device) {
  return static_cast<size_t>(std::max(1, device.tiles));
}

}  // namespace

std::vector<int32_t> ze_order(const Group& group, bool by_pci) {
  std::vector<int32_t> order = group.devices;
  if (!by_pci)
    std::stable_partition(order.begin(), order.end(), [&](int32_t device) {
      return !group.inventory.devices[static_cast<size_t>(device)].integrated;
    });
  return order;
}

ZeHierarchy ze_default_hierarchy(const Inventory& inventory, const std::vector<int32_t>& cards) {
  const bool hpc = !cards.empty() && is_xe_hpc(inventory.devices[static_cast<size_t>(cards.front())]);
  return hpc ? ZeHierarchy::flat : ZeHierarchy::composite;
}

const char* hierarchy_name(ZeHierarchy hierarchy) {
  static constexpr const char* kNames[] = {"COMPOSITE", "FLAT", "COMBINED"};
  return kNames[static_cast<size_t>(hierarchy)];
}

ZeCards::ZeCards(const Inventory& inventory, std::vector<int32_t> cards, ZeHierarchy hierarchy)
    : inventory_(inventory), cards_(std::move(cards)), hierarchy_(hierarchy) {
  for (size_t card = 0; card < cards_.size(); ++card) {
    const size_t tiles = tile_count(inventory_.devices[static_cast<size_t>(cards_[card])]);
    enabled_.emplace_back(tiles);
    const size_t places = tiles_are_devices() ? tiles : 1;
    for (size_t tile = 0; tile < places; ++tile) {
      devices_.push_back({cards_[card], -1, places > 1 ? static_cast<int32_t>(tile) : -1});
      card_of_.push_back(card);
    }
  }
}

int32_t ZeCards::tiles_at(size_t index) const {
  return devices_[index].tile >= 0 ? 1 : static_cast<int32_t>(enabled_[card_of(index)].size());
}

void ZeCards::enable(size_t index) {
  auto& tiles = enabled_[card_of(index)];
  if (devices_[index].tile >= 0)
    tiles[static_cast<size_t>(devices_[index].tile)] = true;
  else
    tiles.assign(tiles.size(), true);
}

void ZeCards::enable_tile(size_t index, int32_t tile) {
  enabled_[card_of(index)][static_cast<size_t>(tile)] = true;
}

void ZeCards::enable_all() {
  for (auto& tiles : enabled_) tiles.assign(tiles.size(), true);
}

bool ZeCards::is_enabled(size_t index, int32_t tile) const {
  const auto& tiles = enabled_[card_of(index)];
  if (devices_[index].tile >= 0) tile = devices_[index].tile;
  return tile < 0 ? std::find(tiles.begin(), tiles.end(), true) != tiles.end() : tiles[static_cast<size_t>(tile)];
}

std::vector<ZeRoot> ZeCards::roots() const {
  std::vector<ZeRoot> out;
  for (size_t card = 0; card < cards_.size(); ++card) {
    const auto& tiles = enabled_[card];
    std::vector<Unit> units;
    for (size_t tile = 0; tile < tiles.size(); ++tile)
      if (tiles[tile]) units.push_back({cards_[card], -1, tiles.size() > 1 ? static_cast<int32_t>(tile) : -1});
    if (units.empty()) continue;
    if (tiles_are_devices()) {
      for (const Unit& unit : units) out.push_back({{unit}, {}});
    } else if (units.size() == 1) {
      out.push_back({units, {}});
    } else {
      const bool whole = units.size() == tiles.size();
      out.push_back({whole ? std::vector<Unit>{{cards_[card], -1, -1}} : units, units});
    }
  }
  return out;
}

}  // namespace gsel
