// plan/constants.cc: see constants.h. bench/plan/fit prints the table: each class was fitted to the rows in
// bench/results/plan.md. A constant that the rows of a class do not determine keeps the value of A100 or H100.
#include "plan/constants.h"

#include <initializer_list>

namespace gsel::plan {
namespace {

ClassConstants a100() {
  ClassConstants f;
  Constants& k = f.base;
  k.device_class = "a100", k.rows = 773, k.spread = 0.07;
  k.covered = {true, true, true, false};
  k.products = 0.882, k.product_traffic = 1.84, k.flash = 0.355;
  k.score_passes = 7.74, k.element_passes = 1.32, k.logit_passes = 14.7, k.optimizer_passes = 0.972;
  k.host_layer_s = 0.981e-3, k.host_tensor_s = 37e-6, k.host_rank_s = 38e-6, k.host_backward = 1.16;
  k.inside = 0.753, k.network = 0.761, k.message = 0.539, k.gather_exposed = 0.592;
  k.call_s = 31e-6, k.inside_hops = 1.49, k.network_hops = 1.83, k.ring_hops = 0.42;
  f.by_parameter_calls = 11.2, f.by_parameter_network = 0.31;
  return f;
}

ClassConstants h100() {
  ClassConstants f = a100();
  Constants& k = f.base;
  k.device_class = "h100", k.rows = 49, k.spread = 0.07;
  k.covered = {true, true, true, false};
  k.products = 0.813, k.eight_bit = 1.03, k.flash = 0.255, k.element_passes = 1.9, k.logit_passes = 16.1;
  k.inside = 0.611, k.network = 0.85, k.gather_exposed = 0.502, k.ring_hops = 0.444;
  f.compiled_elements = 0.43, f.overlapped_flash = 2.18, f.tensor_hidden = 0.238;
  return f;
}

ClassConstants b200() {
  ClassConstants f = h100();
  Constants& k = f.base;
  k.device_class = "b200", k.rows = 10, k.spread = 0.06;
  k.covered = {true, true, false, false};
  k.products = 0.683, k.flash = 0.196, k.element_passes = 1.66, k.inside = 0.9;
  return f;
}

// The same chip with a higher power limit.
ClassConstants gb300() {
  ClassConstants f = b200();
  f.base.device_class = "gb300", f.base.rows = 4;
  f.base.products = 0.854, f.base.flash = 0.236;
  return f;
}

ClassConstants titan() {
  ClassConstants f = a100();
  Constants& k = f.base;
  k.device_class = "titan-rtx", k.rows = 2, k.spread = 0.1;
  k.covered = {false, false, false, false};
  k.products = 0.827, k.inside = 0.739;
  return f;
}

ClassConstants t4() {
  ClassConstants f = a100();
  Constants& k = f.base;
  k.device_class = "t4", k.rows = 6, k.spread = 0.1;
  k.covered = {true, true, false, false};
  k.products = 0.406, k.element_passes = 1.84, k.logit_passes = 16.7, k.network = 0.733, k.inside = 0.303;
  return f;
}

ClassConstants v100() {
  ClassConstants f = a100();
  Constants& k = f.base;
  k.device_class = "v100", k.rows = 2, k.spread = 0.15;
  k.covered = {false, true, false, false};
  k.products = 0.41, k.element_passes = 1.8;
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
    f.base.rows = 0, f.base.spread = 0.3, f.base.covered = {};
  return f;
}

const char* name_of(Runtime runtime) {
  static constexpr const char* kNames[kRuntimes] = {"plain", "sharded", "compiled", "overlapped", "by-parameter"};
  return kNames[static_cast<size_t>(runtime)];
}

void align_kinds(Cluster& cluster) {
  const double first = class_constants(cluster.kinds.at(0).device_class).base.products;
  for (DeviceKind& kind : cluster.kinds) kind.matmul_share *= class_constants(kind.device_class).base.products / first;
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
      k.messages_divided = false;
      k.data_exposed = k.gather_exposed, k.data_hidden_by = k.gather_hidden_by;
      host(f.host_share);
      break;
    case Runtime::compiled:
      k.messages_divided = false;
      k.data_exposed = k.gather_exposed, k.data_hidden_by = k.gather_hidden_by;
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
