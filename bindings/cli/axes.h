// axes.h: the axes as people see them.
#pragma once

#include <gsel/mesh.h>

#include <vector>

namespace gsel::cli {

// From inner to outer. The context axis goes without saying where it has one rank.
inline std::vector<gsel_axis> shown_axes(int32_t context_ranks) {
  if (context_ranks > 1) return {GSEL_AXIS_TENSOR, GSEL_AXIS_CONTEXT, GSEL_AXIS_DATA, GSEL_AXIS_PIPELINE};
  return {GSEL_AXIS_TENSOR, GSEL_AXIS_DATA, GSEL_AXIS_PIPELINE};
}

}  // namespace gsel::cli
