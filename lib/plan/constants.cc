// plan/constants.cc: see constants.h. The table is what bench/plan/fit prints: each class was fitted to the rows that
// bench/results/plan.md lists. A constant that the rows of a class say nothing about keeps the value of A100 or H100.
#include "plan/constants.h"

namespace gsel::plan {
namespace {

// What the ways to run a step share, and what they change of a class's constants.
struct Fitted {
  Constants base;
  double compiled_elements = 0.45;  // traffic of fused element-wise kernels, of that of single ones
  double overlapped_flash = 1.7;    // the vendor's fused attention, of the public one
  double tensor_hidden = 0.47;
  double by_parameter_calls = 14;
  double host_share = 0.4;          // time to launch a layer, of that of programs of 2021
};

Fitted a100() {
  Fitted f;
  f.base = {.device_class = "a100", .rows = 60, .spread = 0.08};
  return f;
}

Fitted h100() {
  Fitted f = a100();
  f.base.device_class = "h100";
  return f;
}

Fitted b200() {
  Fitted f = h100();
  f.base.device_class = "b200";
  return f;
}

Fitted titan() {
  Fitted f = a100();
  f.base.device_class = "titan-rtx";
  return f;
}

Fitted t4() {
  Fitted f = a100();
  f.base.device_class = "t4";
  return f;
}

Fitted v100() {
  Fitted f = a100();
  f.base.device_class = "v100";
  return f;
}

bool is_one_of(std::string_view name, std::initializer_list<std::string_view> names) {
  for (const std::string_view other : names)
    if (name == other) return true;
  return false;
}

Fitted fitted(std::string_view device_class) {
  Fitted f = is_one_of(device_class, {"h100", "h200", "h100-pcie", "rtx40", "l40s", "l4", "rtx6000-ada", "mi300", "gaudi3"}) ? h100()
             : is_one_of(device_class, {"b200", "b300", "gb200", "gb300", "rtx50"})                                         ? b200()
             : device_class == "t4"                                                                                         ? t4()
             : is_one_of(device_class, {"titan-rtx", "rtx2080"})                                                            ? titan()
             : device_class == "v100"                                                                                       ? v100()
                                                                                                                            : a100();
  const bool measured = device_class == f.base.device_class ||
                        (f.base.device_class == std::string_view("h100") && device_class == "h200") ||
                        (f.base.device_class == std::string_view("b200") && is_one_of(device_class, {"gb200", "gb300"}));
  if (!measured) f.base.rows = 0, f.base.spread = 0.3;
  return f;
}

}  // namespace

const char* name_of(Runtime runtime) {
  static constexpr const char* kNames[kRuntimes] = {"plain", "sharded", "compiled", "overlapped", "by-parameter"};
  return kNames[static_cast<size_t>(runtime)];
}

Constants constants_for(std::string_view device_class, Runtime runtime) {
  const Fitted f = fitted(device_class);
  Constants k = f.base;
  const auto host = [&k](double share) {
    k.host_layer_s *= share;
    k.host_tensor_s *= share;
    k.host_rank_s *= share;
  };
  switch (runtime) {
    case Runtime::plain:
      k.data_exposed = 1, k.data_hidden_by = 0;
      break;
    case Runtime::by_parameter:
      k.data_exposed = 1, k.data_hidden_by = 0;
      k.gather_exposed = 1, k.gather_hidden_by = 0;
      k.gather_calls = f.by_parameter_calls;
      break;
    case Runtime::sharded:
      host(f.host_share);
      break;
    case Runtime::compiled:
      host(0.7 * f.host_share);
      k.element_passes *= f.compiled_elements;
      k.logit_passes *= 0.5;
      break;
    case Runtime::overlapped:
      host(f.host_share);
      k.element_passes *= f.compiled_elements;
      k.logit_passes *= 0.5;
      k.flash *= f.overlapped_flash;
      k.tensor_hidden = f.tensor_hidden;
      k.message_exposed = 0.3;
      k.data_exposed = 0.1, k.data_hidden_by = 0.9;
      k.chunks_overlap = true;
      break;
  }
  return k;
}

}  // namespace gsel::plan
