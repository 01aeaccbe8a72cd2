// base/axis.h: the mesh axes that this version has, and their order in a mesh.
#pragma once

#include <gsel/types.h>

#include <array>
#include <string>

namespace gsel {

constexpr gsel_axis kAxes = 4;  // numbers of gsel/types.h, from 0
static_assert(kAxes <= GSEL_MAX_AXES);

// Ranks that differ only on the first axis are neighbours.
constexpr std::array<gsel_axis, kAxes> kInnerToOuter{GSEL_AXIS_TENSOR, GSEL_AXIS_CONTEXT, GSEL_AXIS_DATA,
                                                     GSEL_AXIS_PIPELINE};

constexpr bool is_axis(gsel_axis axis) {
  return axis >= 0 && axis < kAxes;
}

// Whether ranks along the axis share layers: each computes a part of every sample.
constexpr bool shares_layers(gsel_axis axis) {
  return axis == GSEL_AXIS_TENSOR || axis == GSEL_AXIS_CONTEXT;
}

// The name in config files; "unknown" if `axis` is no axis.
const char* axis_name(gsel_axis axis);

// "tensor, context, data, pipeline": for messages.
const std::string& axis_names();

}  // namespace gsel
