// select/candidates.h: the units (devices or parts of devices) that may still be selected. Selection is a sequence of
// layers; each layer drops or reorders units, and stores a reason with every unit that it drops. Does not know the
// layers.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "select/inventory/unit.h"
#include "select/request/spec.h"

namespace gsel {

// The outcome for one device or partition.
struct Verdict {
  Unit unit;
  int32_t position = -1;  // place in the selection
  std::string reason;
};

class Candidates {
 public:
  explicit Candidates(const Inventory& inventory);

  const Inventory& inventory() const { return inventory_; }
  const Device& device(const Unit& unit) const { return inventory_.devices[static_cast<size_t>(unit.device)]; }
  const std::vector<Unit>& kept() const { return kept_; }
  bool keeps(const Unit& unit) const { return rows_[row_of(unit)].kept; }
  const std::string& reason(const Unit& unit) const { return rows_[row_of(unit)].reason; }

  // Keeps these units, in this order, and drops all others. A unit may be a part of a unit that was kept before.
  void keep(std::vector<Unit> units, const std::function<std::string(const Unit&)>& why_dropped);
  void keep(std::vector<Unit> units, const std::string& why_dropped) {
    keep(std::move(units), [&](const Unit&) { return why_dropped; });
  }
  // Drops each unit for which `unwanted` returns a reason; an empty reason keeps the unit.
  void drop(const std::function<std::string(const Unit&)>& unwanted);
  // Replaces the order of the same units.
  void reorder(std::vector<Unit> units) { kept_ = std::move(units); }
  // Takes over the state of another set over the same inventory.
  void assign(Candidates&& other) {
    rows_ = std::move(other.rows_);
    kept_ = std::move(other.kept_);
  }
  // Adds a reason why a kept unit is kept.
  void note(const Unit& unit, const std::string& reason);

  // Current verdicts, in the order of the inventory.
  std::vector<Verdict> verdicts() const;

 private:
  struct Row {
    Unit unit;
    bool kept = true;
    std::string reason;
  };
  // Parts that are not listed, such as tiles, use the row of their device.
  size_t row_of(const Unit& unit) const;

  const Inventory& inventory_;
  std::vector<size_t> first_row_;  // by device
  std::vector<Row> rows_;
  std::vector<Unit> kept_;
};

// ---- clauses that say which devices are acceptable ------------------------------------------------------------------

// Why the unit does not pass the filter: "80.0 GiB free, 100 GiB asked for"; empty when it passes. Does not evaluate
// filters that list devices.
std::string misses(const Inventory& inventory, const Unit& unit, const Clause& clause);

// Matches shell globs, ignoring case.
bool glob_matches(const std::string& glob, const std::string& text);

// Why the unit cannot be used: "not to be opened by this user"; with free_only also that it is in use. Empty when it
// can be used; `code` is the code of the refusal.
std::string unavailable(const Device& device, const Unit& unit, bool free_only, gsel_status* code);

// "reserved by process 17", "used by 2 processes"; empty when no use is known.
std::string busy_text(const Device& device, const Unit& unit);

}  // namespace gsel
