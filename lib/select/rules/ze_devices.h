// select/rules/ze_devices.h: Intel cards as Level Zero enumerates them: the order, and whether a card or each of its
// tiles is a device; and what ONEAPI_DEVICE_SELECTOR leaves. Shared by strict and compat readings.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "select/inventory/unit.h"
#include "select/words/tokens.h"

namespace gsel {

enum class ZeHierarchy : int8_t { composite, flat, combined };

// A device that zeDeviceGet returns.
struct ZeRoot {
  std::vector<Unit> units;  // what a program gets: one unit, or several tiles of a card
  std::vector<Unit> parts;  // its sub-devices
};

// The driver's order: discrete before integrated devices, then by bus address; with by_pci, only by bus address.
std::vector<int32_t> ze_order(const Group& group, bool by_pci);

// The driver's default without ZE_FLAT_DEVICE_HIERARCHY: FLAT on Xe-HPC, COMPOSITE elsewhere.
ZeHierarchy ze_default_hierarchy(const Inventory& inventory, const std::vector<int32_t>& cards);
const char* hierarchy_name(ZeHierarchy hierarchy);

class ZeCards {
 public:
  ZeCards(const Inventory& inventory, std::vector<int32_t> cards, ZeHierarchy hierarchy);

  bool tiles_are_devices() const { return hierarchy_ != ZeHierarchy::composite; }
  ZeHierarchy hierarchy() const { return hierarchy_; }
  // The number of devices that a mask's indexes refer to: cards, or tiles of all cards.
  size_t size() const { return devices_.size(); }
  // The unit of an index; a card with one tile is a whole card.
  Unit at(size_t index) const { return devices_[index]; }
  int32_t tiles_at(size_t index) const;

  void enable(size_t index);
  void enable_tile(size_t index, int32_t tile);
  void enable_all();
  bool is_enabled(size_t index, int32_t tile) const;
  std::vector<ZeRoot> roots() const;

 private:
  size_t card_of(size_t index) const { return card_of_[index]; }

  const Inventory& inventory_;
  std::vector<int32_t> cards_;
  ZeHierarchy hierarchy_;
  std::vector<Unit> devices_;               // by index
  std::vector<size_t> card_of_;             // by index
  std::vector<std::vector<bool>> enabled_;  // by card, by tile
};

// ---- ONEAPI_DEVICE_SELECTOR -----------------------------------------------------------------------------------------
// With it a SYCL program filters the devices of Level Zero: terms "backend:devices" joined by semicolons, with "!"
// before terms that discard. It only filters and keeps the order. Source: intel/llvm, sycl/doc/EnvironmentVariables.md
// and sycl/source/detail/device_filter.cpp.

struct SelectorTarget {
  Token token;  // "gpu", "0.1", "*"
  bool discards = false;
  bool level_zero = false;              // the backend is level_zero or *
  std::string type;                     // "gpu", "cpu", ...; "*": any device; empty: by number
  std::optional<int32_t> number;        // of a device
  bool of_parts = false;                // a sub-device is meant, not the device
  std::optional<int32_t> part;          // number of the sub-device; absent with of_parts: all
  std::vector<std::string> as_written;  // the text of each number
};

// Reads the terms as SYCL does. GSEL_ERR_SYNTAX when SYCL would throw.
std::vector<SelectorTarget> parse_selector(const Input& input);

// The devices that the targets leave, in their order.
std::vector<Unit> select_by(const std::vector<SelectorTarget>& targets, const std::vector<ZeRoot>& roots,
                            const Input& input, const Inventory& inventory, Trace& trace);

}  // namespace gsel
