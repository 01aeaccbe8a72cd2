// base/types.h: names and properties of the numbers of gsel/types.h: element types, operations, and the mesh axes that
// this version has, with their order in a mesh.
#pragma once

#include <gsel/types.h>

#include <array>
#include <cstddef>
#include <string>

namespace gsel {

// 0 when unknown. Inline, since each small call needs it several times.
constexpr size_t dtype_bytes(gsel_dtype dtype) {
  constexpr unsigned char kBytes[] = {0, 1, 1, 2, 2, 4, 4, 8, 8, 2, 2, 4, 8, 1, 1, 1};
  return static_cast<size_t>(dtype) < sizeof kBytes ? kBytes[dtype] : 0;
}
constexpr bool is_floating(gsel_dtype dtype) {
  return dtype >= GSEL_F16 && dtype <= GSEL_F8E5M2;
}
const char* dtype_name(gsel_dtype dtype);  // "unknown" when unknown
const char* op_name(gsel_op op);

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
