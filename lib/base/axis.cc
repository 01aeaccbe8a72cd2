// base/axis.cc: see axis.h.
#include "base/axis.h"

namespace gsel {

const char* axis_name(gsel_axis axis) {
  static const char* const names[] = {"tensor", "data", "pipeline", "context"};
  static_assert(sizeof names / sizeof *names == kAxes);
  return is_axis(axis) ? names[axis] : "unknown";
}

const char* axis_names() {
  return "tensor, context, data, pipeline";
}

}  // namespace gsel
