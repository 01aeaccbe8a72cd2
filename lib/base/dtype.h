// base/dtype.h: sizes and names of element types, operations and axes.
#pragma once

#include <gsel/types.h>

#include <cstddef>

namespace gsel {

size_t dtype_bytes(gsel_dtype dtype);      // 0 when unknown
const char* dtype_name(gsel_dtype dtype);  // "unknown" when unknown
const char* op_name(gsel_op op);
const char* axis_name(gsel_axis axis);

}  // namespace gsel
