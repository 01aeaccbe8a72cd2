// plan/constants.cc: see constants.h. The table is what bench/plan/fit prints: each class was fitted to the rows that
// bench/results/plan.md lists. A constant that the rows of a class say nothing about keeps the value of A100 or H100.
#include "plan/constants.h"

#include <initializer_list>

namespace gsel::plan {
namespace {

ClassConstants a100() {
  ClassConstants f;
  f.base = {.device_class = "a100",
            .rows = 62,
            .spread = 0.08,
            .products = 0.871,
            .product_traffic = 1.76,
            .product_s = 5e-6,
            .flash = 0.369,
            .score_passes = 7.54,
            .element_passes = 1.28,
            .logit_passes = 15.6,
            .optimizer_passes = 1.08,
            .host_layer_s = 0.974e-3,
            .host_tensor_s = 37e-6,
            .host_rank_s = 39e-6,
            .host_backward = 1.16,
            .inside = 0.771,
            .network = 0.754,
            .message = 0.558,
            .call_s = 32e-6,
            .inside_hops = 1.47,
            .network_hops = 1.83,
            .ring_hops = 0.404,
            .message_s = 40e-6,
            .gather_exposed = 0.685,
            .step_s = 3.6e-3};
  f.by_parameter_calls = 12, f.by_parameter_network = 0.32;
  return f;
}

ClassConstants h100() {
  ClassConstants f = a100();
  Constants& k = f.base;
  k.device_class = "h100", k.rows = 42, k.spread = 0.07;
  k.products = 0.822, k.eight_bit = 0.98, k.flash = 0.255, k.element_passes = 2.2, k.logit_passes = 10.7;
  k.inside = 0.639, k.network = 0.85, k.gather_exposed = 0.63, k.ring_hops = 0.39;
  f.compiled_elements = 0.404, f.overlapped_flash = 2.15, f.tensor_hidden = 0.3;
  return f;
}

ClassConstants b200() {
  ClassConstants f = h100();
  Constants& k = f.base;
  k.device_class = "b200", k.rows = 10, k.spread = 0.1;
  k.products = 0.73, k.flash = 0.18, k.element_passes = 2.25, k.inside = 0.9;
  return f;
}

// The same silicon at a higher power.
ClassConstants gb300() {
  ClassConstants f = b200();
  f.base.device_class = "gb300", f.base.rows = 4;
  f.base.products = 0.945, f.base.flash = 0.2;
  return f;
}

ClassConstants titan() {
  ClassConstants f = a100();
  f.base.device_class = "titan-rtx", f.base.rows = 2, f.base.spread = 0.1;
  f.base.products = 0.844, f.base.inside = 0.872;
  return f;
}

ClassConstants t4() {
  ClassConstants f = a100();
  f.base.device_class = "t4", f.base.rows = 6, f.base.spread = 0.1;
  f.base.products = 0.405, f.base.element_passes = 1.72, f.base.logit_passes = 18.5, f.base.network = 0.73,
  f.base.inside = 0.3;
  return f;
}

ClassConstants v100() {
  ClassConstants f = a100();
  f.base.device_class = "v100", f.base.rows = 1;
  f.base.products = 0.6, f.base.element_passes = 2, f.base.host_layer_s = 2e-3;
  return f;
}

bool is_one_of(std::string_view name, std::initializer_list<std::string_view> names) {
  for (const std::string_view other : names)
    if (name == other) return true;
  return false;
}

}  // namespace

ClassConstants class_constants(std::string_view device_class) {
  ClassConstants f =
      is_one_of(device_class, {"h100", "h200", "h100-pcie", "rtx40", "l40s", "l4", "rtx6000-ada", "mi300", "gaudi3"})
          ? h100()
      : is_one_of(device_class, {"b200", "gb200", "rtx50"}) ? b200()
      : is_one_of(device_class, {"b300", "gb300"})          ? gb300()
      : is_one_of(device_class, {"titan-rtx", "rtx2080"})   ? titan()
      : device_class == "t4"                                ? t4()
      : device_class == "v100"                              ? v100()
                                                            : a100();
  if (!is_one_of(device_class, {"a100", "h100", "h200", "b200", "gb200", "gb300", "titan-rtx", "t4", "v100"}))
    f.base.rows = 0, f.base.spread = 0.3;
  return f;
}

const char* name_of(Runtime runtime) {
  static constexpr const char* kNames[kRuntimes] = {"plain", "sharded", "compiled", "overlapped", "by-parameter"};
  return kNames[static_cast<size_t>(runtime)];
}

Constants constants_of(const ClassConstants& f, Runtime runtime) {
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
      k.gather_calls = f.by_parameter_calls, k.gather_network = f.by_parameter_network;
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
