// select/compat/ascend.cc: the devices that the Ascend runtime shows: ASCEND_RT_VISIBLE_DEVICES lists logical ids, and
// any character other than digits and commas ends the list. Tools that use DCMI, such as npu-smi, do not read it.
// Source: CANN environment variable reference, ASCEND_RT_VISIBLE_DEVICES.
#include "select/compat/compat.h"
#include "select/compat/numbers.h"
#include "select/rules/rules.h"

namespace gsel {
namespace {

std::vector<Unit> read_mask(const Inventory& inventory, const std::vector<int32_t>& devices, const Input& input,
                            Trace& trace) {
  std::vector<Unit> units;
  std::vector<bool> seen(devices.size());
  int64_t before = -1;
  bool ascending = true;
  read_fields("Ascend", input, split_fields(input.value, ','), trace, [&](const Token& field) {
    if (!is_number(field.text)) return ends("a blank or any character but a digit ends the list");
    const int64_t id = number_of(field.text);
    if (id >= static_cast<int64_t>(devices.size())) return ends("an id that no device has ends the list");
    const auto place = static_cast<size_t>(id);
    if (seen[place]) return ends("a repeated id is not documented; taken as a bad one, which ends the list");
    seen[place] = true;
    ascending = ascending && id > before;
    before = id;
    units.push_back({devices[place], -1, -1});
    return kept(unit_text(inventory, units.back()), "a logical id");
  });
  if (!ascending)
    trace.warn(fmt::format("{}: current CANN documents allow ascending ids only; older ones (6.3) show another order",
                           input.shown()));
  return units;
}

}  // namespace

Reading read_ascend(const Case& asked, Trace& trace) {
  const Group group = accessible_part(group_of(asked.inventory, asked.host, "ascend"), trace);
  const std::vector<int32_t> devices = driver_order(group);
  const std::string* mask = find_variable(asked.environment, kAscendMask);
  Reading out;
  if (!mask) {
    for (const int32_t device : devices) out.units.push_back({device, -1, -1});
  } else {
    const Input input{kAscendMask, *mask};
    out.units = read_mask(asked.inventory, devices, input, trace);
    out.hidden_by = mask->empty() ? fmt::format("hidden: {} is empty", kAscendMask) : "hidden by " + input.shown();
  }
  if (out.units.empty()) trace.warn("aclrtGetDeviceCount finds no device");
  return out;
}

}  // namespace gsel
