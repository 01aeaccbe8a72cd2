// select/rules/rules.cc: the table of vendors that gsel knows.
#include "select/rules/rules.h"

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

}  // namespace gsel
