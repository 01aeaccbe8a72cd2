// select/candidates.cc: see candidates.h.
#include "select/candidates.h"

namespace gsel {

Candidates::Candidates(const Inventory& inventory) : inventory_(inventory) {
  const size_t count = inventory.devices.size();
  first_row_.reserve(count);
  rows_.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    first_row_.push_back(rows_.size());
    const auto device = static_cast<int32_t>(i);
    const auto partitions = static_cast<int32_t>(inventory.devices[i].partitions.size());
    if (partitions == 0) rows_.push_back({{device, -1, -1}, true, {}});
    for (int32_t p = 0; p < partitions; ++p) rows_.push_back({{device, p, -1}, true, {}});
  }
  kept_.reserve(rows_.size());
  for (const Row& row : rows_) kept_.push_back(row.unit);
}

size_t Candidates::row_of(const Unit& unit) const {
  return first_row_[static_cast<size_t>(unit.device)] + static_cast<size_t>(unit.partition < 0 ? 0 : unit.partition);
}

void Candidates::keep(std::vector<Unit> units, const std::function<std::string(const Unit&)>& why_dropped) {
  std::vector<bool> wanted(rows_.size());
  for (const Unit& unit : units) wanted[row_of(unit)] = true;
  for (size_t i = 0; i < rows_.size(); ++i) {
    if (rows_[i].kept && !wanted[i]) rows_[i].reason = why_dropped(rows_[i].unit);
    rows_[i].kept = wanted[i];
  }
  kept_ = std::move(units);
}

void Candidates::drop(const std::function<std::string(const Unit&)>& unwanted) {
  std::vector<Unit> left;
  left.reserve(kept_.size());
  for (const Unit& unit : kept_) {
    std::string reason = unwanted(unit);
    if (reason.empty()) {
      left.push_back(unit);
      continue;
    }
    Row& row = rows_[row_of(unit)];
    row.kept = false;
    row.reason = std::move(reason);
  }
  kept_ = std::move(left);
}

void Candidates::note(const Unit& unit, const std::string& reason) {
  std::string& text = rows_[row_of(unit)].reason;
  text += text.empty() ? reason : "; " + reason;
}

std::vector<Verdict> Candidates::verdicts() const {
  std::vector<Verdict> out;
  out.reserve(rows_.size());
  for (const Row& row : rows_) out.push_back({row.unit, -1, row.reason});
  for (size_t i = kept_.size(); i-- > 0;) out[row_of(kept_[i])].position = static_cast<int32_t>(i);
  return out;
}

}  // namespace gsel
