// base/types.cc: see types.h.
#include "base/types.h"

#include <iterator>

namespace gsel {
namespace {

constexpr const char* kNames[] = {"unknown", "i8",  "u8",   "i16", "u16", "i32",    "u32",    "i64",
                                  "u64",     "f16", "bf16", "f32", "f64", "f8e4m3", "f8e5m2", "bool"};
static_assert(std::size(kNames) == GSEL_BOOL + 1);

}  // namespace

const char* dtype_name(gsel_dtype dtype) {
  return kNames[dtype_bytes(dtype) > 0 ? dtype : 0];
}

const char* op_name(gsel_op op) {
  static const char* const names[] = {"none", "sum", "prod", "min", "max", "avg", "band", "bor", "bxor", "scaled sum"};
  return op >= 0 && op <= GSEL_SCALED_SUM ? names[op] : "unknown";
}

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
