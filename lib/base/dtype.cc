// base/dtype.cc: see dtype.h.
#include "base/dtype.h"

namespace gsel {
namespace {

struct Row {
  size_t bytes;
  const char* name;
};
constexpr Row kRows[] = {{0, "unknown"}, {1, "i8"},  {1, "u8"},  {2, "i16"},    {2, "u16"},
                         {4, "i32"},     {4, "u32"}, {8, "i64"}, {8, "u64"},    {2, "f16"},
                         {2, "bf16"},    {4, "f32"}, {8, "f64"}, {1, "f8e4m3"}, {1, "f8e5m2"}};

const Row& row(gsel_dtype dtype) {
  return kRows[dtype >= GSEL_I8 && dtype <= GSEL_F8E5M2 ? dtype : 0];
}

}  // namespace

size_t dtype_bytes(gsel_dtype dtype) {
  return row(dtype).bytes;
}
const char* dtype_name(gsel_dtype dtype) {
  return row(dtype).name;
}

const char* op_name(gsel_op op) {
  static const char* const names[] = {"none", "sum", "prod", "min", "max", "avg", "band", "bor", "bxor", "scaled sum"};
  return op >= 0 && op <= GSEL_SCALED_SUM ? names[op] : "unknown";
}

const char* axis_name(gsel_axis axis) {
  static const char* const names[] = {"tensor", "data", "pipeline"};
  return axis >= 0 && axis < GSEL_AXES ? names[axis] : "unknown";
}

}  // namespace gsel
