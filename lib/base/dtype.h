// base/dtype.h: sizes and names of element types, operations and axes.
#pragma once

#include <gsel/types.h>

#include <cstddef>

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

}  // namespace gsel
