// select/rules/ascend.cc: ASCEND_RT_VISIBLE_DEVICES, read strictly: logical ids, in ascending order.
// Source: CANN environment variable reference, ASCEND_RT_VISIBLE_DEVICES.
#include <fmt/ranges.h>

#include <algorithm>

#include "select/rules/rules.h"
#include "select/rules/strict_list.h"

namespace gsel {
namespace {}  // namespace

Visible visible_ascend(const Group& group, const Environment& environment, Trace& trace) {
  const std::string* value = find_variable(environment, kAscendMask);
  if (!value) return {units_of(group), {}};
  const Input input{kAscendMask, *value};
  if (value->empty()) {
    trace.add("Ascend", input, {"", 1, false}, "no device", "the list has no entry");
    trace.warn(fmt::format("{} is empty, which hides every Ascend device", kAscendMask));
    return {{}, fmt::format("hidden: {} is empty", kAscendMask)};
  }
  StrictList list{"Ascend", "Ascend", group, driver_order(accessible_part(group, trace))};
  list.number_is = "a logical id";
  list.at_blank = "the Ascend runtime ends the list there";
  const std::vector<int32_t> devices = read_strictly(list, input, trace);
  Visible out;
  const Places in_order(group, list.devices);
  std::vector<int32_t> places;
  for (const int32_t device : devices) {
    out.units.push_back({device, -1, -1});
    places.push_back(in_order.of(device));
  }
  if (!std::is_sorted(places.begin(), places.end()))
    trace.warn(fmt::format("{}: current CANN documents allow ascending ids only", input.shown()));
  out.hidden_by = "hidden by " + input.shown();
  return out;
}

Emission emit_ascend(const Group& group, const std::vector<Unit>& units) {
  Trace unheard;
  const Places in_order(group, driver_order(accessible_part(group, unheard)));
  std::vector<int32_t> ids;
  for (const Unit& unit : units) ids.push_back(in_order.of(unit.device));
  Emission out;
  if (!std::is_sorted(ids.begin(), ids.end()))
    out.warnings.push_back(fmt::format(
        "{} takes ascending ids: the child numbers these devices in that order, not as selected", kAscendMask));
  std::sort(ids.begin(), ids.end());
  out.lines.emplace_back(kAscendMask, fmt::format("{}", fmt::join(ids, ",")));
  return out;
}

}  // namespace gsel
