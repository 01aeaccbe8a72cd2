// base/axis.h: the axes that this version has, and how they lie in a mesh.
#pragma once

#include <gsel/types.h>

#include <array>
#include <string>

namespace gsel {

constexpr gsel_axis kAxes = 4;  // numbers of gsel/types.h, from 0
static_assert(kAxes <= GSEL_MAX_AXES);

// Ranks that differ on the first of them alone are neighbours.
constexpr std::array<gsel_axis, kAxes> kInnerToOuter{GSEL_AXIS_TENSOR, GSEL_AXIS_CONTEXT, GSEL_AXIS_DATA,
                                                     GSEL_AXIS_PIPELINE};

constexpr bool is_axis(gsel_axis axis) {
  return axis >= 0 && axis < kAxes;
}

// Whether ranks along the axis share layers: each computes a part of every sample.
constexpr bool shares_layers(gsel_axis axis) {
  return axis == GSEL_AXIS_TENSOR || axis == GSEL_AXIS_CONTEXT;
}

// As config files name it; "unknown" for no axis.
const char* axis_name(gsel_axis axis);

// "tensor, context, data, pipeline": for messages.
const std::string& axis_names();

}  // namespace gsel
