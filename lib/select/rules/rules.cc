// select/rules.cc: the systems gsel knows.
#include "select/rules.h"

namespace gsel {

const std::vector<Rules>& rules() {
  static const std::vector<Rules> all = {
      {"cuda", "nvidia", "NVIDIA", {"CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"}, narrow_cuda, emit_cuda},
  };
  return all;
}

const Rules* rules_for(std::string_view vendor) {
  for (const Rules& row : rules())
    if (vendor == row.vendor) return &row;
  return nullptr;
}

}  // namespace gsel
