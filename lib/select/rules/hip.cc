// select/rules/hip.cc: the masks of AMD devices, read strictly, layer by layer: ROCR_VISIBLE_DEVICES in ROCr, then
// HIP_VISIBLE_DEVICES, or else CUDA_VISIBLE_DEVICES, in the HIP runtime, whose indexes count the devices that ROCr
// left. Source: ROCm documentation, "GPU isolation techniques"; ROCR-Runtime and clr for their silent behaviour.
#include <fmt/ranges.h>

#include "select/rules/rules.h"
#include "select/rules/strict_list.h"

namespace gsel {
namespace {

constexpr const char* kLabel = "AMD";

std::vector<int32_t> rocr_layer(const Group& group, std::vector<int32_t> devices, const Input& input, Trace& trace) {
  if (input.value.empty()) {
    trace.add("ROCr", input, {"", 1, false}, "no device", "an empty value surfaces no device");
    trace.warn(fmt::format("{} is empty, which hides every AMD device", kRocrMask));
    return {};
  }
  StrictList list{"ROCr", kLabel, group, std::move(devices)};
  list.uuids = true;
  return read_strictly(list, input, trace);
}

// The mask that the HIP runtime reads; nullptr: none. An empty variable counts as unset.
const char* hip_mask(const Environment& environment, Trace& trace) {
  const char* mask = nullptr;
  for (const char* name : {kHipMask, kCudaMask}) {
    const std::string* value = find_variable(environment, name);
    if (!value) continue;
    if (value->empty()) {
      trace.add("HIP", {name, ""}, {"", 1, false}, "as if unset", "an empty value is no mask to the HIP runtime");
      trace.warn(fmt::format("{} is empty, which hides no AMD device: {} would", name, kRocrMask));
    } else if (!mask) {
      mask = name;
    } else {
      trace.add("HIP", {name, *value}, {*value, 1, false}, "nothing", "HIP_VISIBLE_DEVICES is read in its place");
      if (*value != *find_variable(environment, mask))
        trace.warn(fmt::format("{} is not read: {} is read instead", Input{name, *value}.shown(), kHipMask));
    }
  }
  return mask;
}

StrictList hip_list(const Group& group, const std::vector<int32_t>& devices, const Input* below) {
  StrictList list{"HIP", kLabel, group, devices};
  list.number_is = below ? "an index into what ROCr left" : "an index";
  list.uuids = true;
  list.any_case = false;
  list.at_blank = "the HIP runtime ends the list there";
  list.below = below;
  return list;
}

// CUDA_VISIBLE_DEVICES on a host with NVIDIA devices is meant for those; unreadable to HIP, it hides all AMD devices.
std::vector<int32_t> foreign_mask(const StrictList& list, const Input& input, Trace& trace) {
  try {
    return read_strictly(list, input, trace);
  } catch (const Error& error) {
    trace.warn(fmt::format("{} is read by the HIP runtime too, to which it means no AMD device: {}", kCudaMask,
                           error.message()));
    return {};
  }
}

void note_opencl(const Environment& environment, Trace& trace) {
  const std::string* value = find_variable(environment, "GPU_DEVICE_ORDINAL");
  if (!value) return;
  trace.add("HIP", {"GPU_DEVICE_ORDINAL", *value}, {*value, 1, false}, "nothing",
            "read for OpenCL alone, though ROCm's documentation says OpenCL and HIP");
}

// A device without a unique id has no uuid that ROCr reads.
bool has_rocr_uuid(const Device& device) {
  const std::string uuid = lower_case(device.uuid);
  return uuid.starts_with("gpu-") && uuid.size() > 4 && uuid.size() <= 20 &&
         uuid.find_first_not_of("0123456789abcdef", 4) == uuid.npos;
}

}  // namespace

Visible visible_hip(const Group& group, const Environment& environment, Trace& trace) {
  const std::string* rocr = find_variable(environment, kRocrMask);
  const char* mask = hip_mask(environment, trace);
  note_opencl(environment, trace);
  if (!rocr && !mask) return {units_of(group), {}};

  std::vector<int32_t> devices = driver_order(accessible_part(group, trace));
  std::vector<std::string> hiding;
  const Input below{kRocrMask, rocr ? *rocr : ""};
  if (rocr) {
    devices = rocr_layer(group, std::move(devices), below, trace);
    hiding.push_back(below.shown());
  }
  if (mask) {
    const Input input{mask, *find_variable(environment, mask)};
    const StrictList list = hip_list(group, devices, rocr ? &below : nullptr);
    const bool foreign = mask == kCudaMask && group_of(group.inventory, group.host, "nvidia").size() > 0;
    devices = foreign ? foreign_mask(list, input, trace) : read_strictly(list, input, trace);
    hiding.push_back(input.shown());
  }
  Visible out;
  for (const int32_t device : devices) out.units.push_back({device, -1, -1});
  out.hidden_by = fmt::format("hidden by {}", fmt::join(hiding, " and "));
  return out;
}

// Selects by uuid in ROCr. The HIP mask then lists all that is left, so that an inherited mask does not filter again.
Emission emit_hip(const Group& group, const std::vector<Unit>& units) {
  Emission out;
  std::vector<std::string> entries, places;
  Trace unheard;
  const Places in_order(group, driver_order(accessible_part(group, unheard)));
  for (const Unit& unit : units) {
    const Device& device = group.inventory.devices[static_cast<size_t>(unit.device)];
    entries.push_back(has_rocr_uuid(device) ? device.uuid : std::to_string(in_order.of(unit.device)));
    places.push_back(std::to_string(places.size()));
    if (!has_rocr_uuid(device) && device.ordinal < 0)
      out.warnings.push_back(
          fmt::format("{} has no uuid that ROCr reads: {} names it by its place in bus order, from "
                      "which the order of the kernel driver may differ",
                      unit_text(group.inventory, unit), kRocrMask));
  }
  out.lines.emplace_back(kRocrMask, fmt::format("{}", fmt::join(entries, ",")));
  if (!units.empty()) out.lines.emplace_back(kHipMask, fmt::format("{}", fmt::join(places, ",")));
  return out;
}

}  // namespace gsel
