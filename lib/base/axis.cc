// base/axis.cc: see axis.h.
#include "base/axis.h"

namespace gsel {

const char* axis_name(gsel_axis axis) {
  static const char* const names[] = {"tensor", "data", "pipeline", "context"};
  static_assert(sizeof names / sizeof *names == kAxes);
  return is_axis(axis) ? names[axis] : "unknown";
}

const std::string& axis_names() {
  static const std::string names = [] {
    std::string all;
    for (gsel_axis axis : kInnerToOuter) all += std::string(all.empty() ? "" : ", ") + axis_name(axis);
    return all;
  }();
  return names;
}

}  // namespace gsel
