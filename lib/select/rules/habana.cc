// select/rules/habana.cc: the variables of Gaudi, read strictly. HABANA_VISIBLE_MODULES lists module ids, which are
// stable across reboots; which module a process uses follows from its local rank, not from visibility.
// Source: Gaudi documentation, "Multiple Workloads on a Single Docker".
#include <fmt/ranges.h>

#include <algorithm>

#include "select/rules/rules.h"
#include "select/rules/strict_list.h"

namespace gsel {
namespace {

// The module id of each device; the driver's number if the inventory has none.
std::vector<int64_t> modules_of(const Inventory& inventory, const std::vector<int32_t>& devices) {
  std::vector<int64_t> out;
  for (const int32_t device : devices) {
    const int32_t told = inventory.devices[static_cast<size_t>(device)].module;
    out.push_back(told >= 0 ? told : static_cast<int64_t>(out.size()));
  }
  return out;
}

void note_container_runtime(const Environment& environment, Trace& trace) {
  const std::string* value = find_variable(environment, kHabanaDevices);
  if (!value) return;
  trace.add("container", {kHabanaDevices, *value}, {*value, 1, false}, "nothing",
            "acts when the container is created and never inside it (Gaudi documentation)");
  trace.warn(fmt::format("{} acts when a container is created and hides nothing from a process; {} does",
                         Input{kHabanaDevices, *value}.shown(), kHabanaModules));
}

// Supported are one module, pairs and fours that share the links of one half, and all modules of a server.
bool is_supported(std::vector<int64_t> modules, size_t all) {
  std::sort(modules.begin(), modules.end());
  const auto count = static_cast<int64_t>(modules.size());
  if (count <= 1 || modules.size() == all) return true;
  if (count != 2 && count != 4) return false;
  return modules.front() % count == 0 && modules.back() == modules.front() + count - 1;
}

}  // namespace

Visible visible_habana(const Group& group, const Environment& environment, Trace& trace) {
  note_container_runtime(environment, trace);
  const std::string* value = find_variable(environment, kHabanaModules);
  if (!value) return {units_of(group), {}};
  if (value->empty()) {
    trace.add("Gaudi", {kHabanaModules, ""}, {"", 1, false}, "every device", "an empty value is taken as unset");
    trace.warn(fmt::format("{} is empty, which Gaudi does not document; taken as unset", kHabanaModules));
    return {units_of(group), {}};
  }
  StrictList list{"Gaudi", "Gaudi", group, driver_order(accessible_part(group, trace))};
  list.numbers = modules_of(group.inventory, list.devices);
  list.number_is = "a module id";
  const Input input{kHabanaModules, *value};
  Visible out;
  for (const int32_t device : read_strictly(list, input, trace)) out.units.push_back({device, -1, -1});
  out.hidden_by = "hidden by " + input.shown();
  return out;
}

Emission emit_habana(const Group& group, const std::vector<Unit>& units) {
  const std::vector<int32_t> devices = driver_order(group);
  const std::vector<int64_t> all = modules_of(group.inventory, devices);
  const Places in_order(group, devices);
  std::vector<int64_t> modules;
  Emission out;
  for (const Unit& unit : units) {
    modules.push_back(all[static_cast<size_t>(in_order.of(unit.device))]);
    if (group.inventory.devices[static_cast<size_t>(unit.device)].module < 0)
      out.warnings.push_back(fmt::format("the module id of {} is unknown; its position is used instead",
                                         unit_text(group.inventory, unit)));
  }
  out.lines.emplace_back(kHabanaModules, fmt::format("{}", fmt::join(modules, ",")));
  if (units.empty() && !group.devices.empty())
    out.warnings.push_back(fmt::format("Gaudi documents no value of {} that hides every device", kHabanaModules));
  if (!is_supported(modules, group.size()))
    out.warnings.push_back(fmt::format("{}={} is no supported set: one device, a pair 0,1 2,3 4,5 6,7, or 0-3 or 4-7",
                                       kHabanaModules, fmt::join(modules, ",")));
  return out;
}

}  // namespace gsel
