// select/rules/lint.cc: see rules.h.
#include <algorithm>

#include "base/text.h"
#include "select/rules/rules.h"

namespace gsel {
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
