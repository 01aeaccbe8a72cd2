// select/rules/rules.cc: the table of vendors that gsel knows, and the rules of Apple, which are short.
#include "select/rules/rules.h"

#include <algorithm>

#include "base/text.h"

namespace gsel {

const std::vector<Rules>& rules() {
  static const std::vector<Rules> all = {
      {"cuda", "nvidia", "NVIDIA", visible_cuda, emit_cuda},
      {"hip", "amd", "AMD", visible_hip, emit_hip},
      {"ze", "intel", "Intel", visible_ze, emit_ze},
      {"habana", "habana", "Gaudi", visible_habana, emit_habana, true},
      {"ascend", "ascend", "Ascend", visible_ascend, emit_ascend},
      {"mps", "apple", "Apple", visible_apple, emit_apple},
  };
  return all;
}

const Rules* rules_for(std::string_view vendor) {
  for (const Rules& row : rules())
    if (vendor == row.vendor) return &row;
  return nullptr;
}

const Rules* rules_named(std::string_view accelerator) {
  for (const Rules& row : rules())
    if (accelerator == row.accelerator) return &row;
  return nullptr;
}

const std::string* find_variable(const Environment& environment, std::string_view name) {
  const auto it = environment.find(name);
  return it == environment.end() ? nullptr : &it->second;
}

Group group_of(const Inventory& inventory, int32_t host, std::string_view vendor) {
  Group group{inventory, host, {}};
  const Host& of = inventory.hosts[static_cast<size_t>(host)];
  for (int32_t i = of.first; i < of.first + of.count; ++i)
    if (inventory.devices[static_cast<size_t>(i)].vendor == vendor) group.devices.push_back(i);
  return group;
}

// ---- Apple ----------------------------------------------------------------------------------------------------------
// Metal on Apple machines: one device, which no variable hides, reorders or names. Source: PyTorch documentation, "MPS
// backend".

Visible visible_apple(const Group& group, const Environment&, Trace&) {
  return {units_of(group), {}};
}

Emission emit_apple(const Group& group, const std::vector<Unit>& units) {
  Emission out;
  if (units.size() < group.size()) out.warnings.push_back("no variable hides the Apple device from a process");
  return out;
}

// ---- misspelt variables ---------------------------------------------------------------------------------------------

namespace {

// All device variables that some system reads; see the rules and compat folders.
constexpr std::string_view kKnown[] = {"CUDA_VISIBLE_DEVICES",     "CUDA_DEVICE_ORDER",
                                       "NVIDIA_VISIBLE_DEVICES",   "NVIDIA_DRIVER_CAPABILITIES",
                                       "ROCR_VISIBLE_DEVICES",     "HIP_VISIBLE_DEVICES",
                                       "GPU_DEVICE_ORDINAL",       "ZE_AFFINITY_MASK",
                                       "ZE_FLAT_DEVICE_HIERARCHY", "ZE_ENABLE_PCI_ID_DEVICE_ORDER",
                                       "ONEAPI_DEVICE_SELECTOR",   "HABANA_VISIBLE_DEVICES",
                                       "HABANA_VISIBLE_MODULES",   "ASCEND_RT_VISIBLE_DEVICES",
                                       "ASCEND_VISIBLE_DEVICES",   "TPU_VISIBLE_CHIPS",
                                       "TPU_VISIBLE_DEVICES",      "NEURON_RT_VISIBLE_CORES",
                                       "GGML_VK_VISIBLE_DEVICES",  "AMD_VISIBLE_DEVICES",
                                       "MESA_VK_DEVICE_SELECT",    "VK_LOADER_DEVICE_SELECT",
                                       "MUSA_VISIBLE_DEVICES",     "SYCL_DEVICE_FILTER",
                                       "CUDA_MPS_PIPE_DIRECTORY"};
constexpr int kNear = 2;

// Whether a name is worth comparing; an environment has many other variables.
bool is_about_devices(std::string_view name) {
  static constexpr std::string_view kSigns[] = {"VISIB", "DEVICE", "AFFINITY", "ORDINAL"};
  return name.size() <= 40 && std::any_of(std::begin(kSigns), std::end(kSigns),
                                          [&](std::string_view sign) { return name.find(sign) != name.npos; });
}

}  // namespace

void warn_of_misspelt(const Environment& environment, Trace& trace) {
  for (const auto& [name, value] : environment) {
    if (!is_about_devices(name) || std::find(std::begin(kKnown), std::end(kKnown), name) != std::end(kKnown)) continue;
    for (std::string_view known : kKnown)
      if (edit_distance(name, known) <= kNear) {
        trace.warn(
            fmt::format("{}={}: nothing reads this variable; {} was meant?", printable(name), printable(value), known));
        break;
      }
  }
}

}  // namespace gsel
