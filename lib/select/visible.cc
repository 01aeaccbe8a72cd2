// select/visible.cc: see choose.h.
#include <algorithm>

#include "select/choose.h"

namespace gsel {
namespace {

// Appends the units of several vendors on one host: in bus order, unless a mask reordered some.
void append_host(const std::vector<std::vector<Unit>>& groups, std::vector<Unit>& out) {
  const size_t from = out.size();
  bool sorted = true;
  for (const auto& units : groups) {
    sorted = sorted && std::is_sorted(units.begin(), units.end());
    out.insert(out.end(), units.begin(), units.end());
  }
  if (sorted) std::sort(out.begin() + static_cast<std::ptrdiff_t>(from), out.end());
}

}  // namespace

std::vector<Unit> accelerators(const Inventory& inventory, const std::function<bool(const Rules&)>& wanted) {
  std::vector<Unit> out;
  for (size_t i = 0; i < inventory.devices.size(); ++i) {
    const Device& device = inventory.devices[i];
    const Rules* row = rules_for(device.vendor);
    if (!row || !wanted(*row)) continue;
    if (!device.divided) out.push_back({static_cast<int32_t>(i), -1, -1});
    for (size_t p = 0; p < device.partitions.size(); ++p)
      out.push_back({static_cast<int32_t>(i), static_cast<int32_t>(p), -1});
  }
  return out;
}

void keep_visible(Candidates& candidates, const Environment& environment,
                  const std::function<bool(const Rules&)>& wanted, Trace& trace) {
  const Inventory& inventory = candidates.inventory();
  std::vector<std::string> reasons{"not among what was asked for"};
  std::vector<size_t> reason_of(inventory.devices.size());
  std::vector<Unit> kept;
  for (size_t h = 0; h < inventory.hosts.size(); ++h) {
    const auto host = static_cast<int32_t>(h);
    std::vector<std::vector<Unit>> groups;
    for (const Rules& row : rules()) {
      if (!wanted(row)) continue;
      const Group group = group_of(inventory, host, row.vendor);
      // On a host with accelerators of other vendors only, the variables are meant for those.
      if (group.devices.empty() && has_accelerators(inventory, host)) continue;
      Visible visible = row.visible(group, environment, trace);
      for (int32_t device : group.devices) reason_of[static_cast<size_t>(device)] = reasons.size();
      reasons.push_back(std::move(visible.hidden_by));
      groups.push_back(std::move(visible.units));
    }
    append_host(groups, kept);
    const Host& of = inventory.hosts[h];
    for (int32_t i = of.first; i < of.first + of.count; ++i) {
      const Device& device = inventory.devices[static_cast<size_t>(i)];
      if (device.is_cpu()) kept.push_back({i, -1, -1});
      if (!rules_for(device.vendor) && !device.is_cpu()) {
        reason_of[static_cast<size_t>(i)] = reasons.size();
        reasons.push_back(fmt::format("of vendor {}, for which gsel has no rules", printable(device.vendor)));
      }
    }
  }
  candidates.keep(std::move(kept), [&](const Unit& unit) -> std::string {
    const std::string& reason = reasons[reason_of[static_cast<size_t>(unit.device)]];
    return reason.empty() ? "in MIG mode, and it has no instance" : reason;
  });
}

}  // namespace gsel
