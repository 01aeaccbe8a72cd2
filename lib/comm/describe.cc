// comm/describe.cc: see describe.h.
#include "comm/describe.h"

#include <fmt/format.h>

#include "base/dtype.h"

namespace gsel {

const char* collective_name(gsel_collective_kind kind) {
  static const char* const names[GSEL_COLLECTIVE_KINDS] = {
      "barrier", "allreduce", "reduce_scatter", "allgather", "broadcast", "send", "recv"};
  return kind >= 0 && kind < GSEL_COLLECTIVE_KINDS ? names[kind] : "unknown";
}

bool is_reduction(gsel_collective_kind kind) {
  return kind == GSEL_COLLECTIVE_ALLREDUCE || kind == GSEL_COLLECTIVE_REDUCE_SCATTER;
}

bool is_point_to_point(gsel_collective_kind kind) {
  return kind == GSEL_COLLECTIVE_SEND || kind == GSEL_COLLECTIVE_RECV;
}

std::string describe(gsel_collective_kind kind, gsel_dtype dtype, gsel_op op, int32_t root, uint64_t count) {
  if (kind == GSEL_COLLECTIVE_BARRIER) return "barrier()";
  std::string text = fmt::format("{}(count {}, {}", collective_name(kind), count, dtype_name(dtype));
  if (is_reduction(kind)) text += fmt::format(", {}", op_name(op));
  if (kind == GSEL_COLLECTIVE_BROADCAST) text += fmt::format(", root {}", root);
  if (kind == GSEL_COLLECTIVE_SEND) text += fmt::format(", to rank {}", root);
  if (kind == GSEL_COLLECTIVE_RECV) text += fmt::format(", from rank {}", root);
  return text + ")";
}

}  // namespace gsel
