// select/rules/apple.cc: Metal on Apple machines: one device, which no variable hides, reorders or names.
// Source: PyTorch documentation, "MPS backend".
#include "select/rules/rules.h"

namespace gsel {

Visible visible_apple(const Group& group, const Environment&, Trace&) {
  return {units_of(group), {}};
}

Emission emit_apple(const Group& group, const std::vector<Unit>& units) {
  Emission out;
  if (units.size() < group.size()) out.warnings.push_back("no variable hides the Apple device from a process");
  return out;
}

}  // namespace gsel
