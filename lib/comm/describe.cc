// comm/describe.cc: see describe.h.
#include "comm/describe.h"

#include <fmt/format.h>

#include "base/dtype.h"
#include "comm/operation.h"

namespace gsel {

const char* collective_name(gsel_collective_kind kind) {
  static const char* const names[GSEL_COLLECTIVE_KINDS] = {
      "barrier",    "allreduce", "reduce_scatter", "allgather", "broadcast", "send",
      "recv",       "reduce",    "gather",         "scatter",   "alltoall",  "reduce_scatterv",
      "allgatherv", "gatherv",   "scatterv",       "alltoallv", "sendrecv"};
  return kind >= 0 && kind < GSEL_COLLECTIVE_KINDS ? names[kind] : "unknown";
}

std::string describe(gsel_collective_kind kind, gsel_dtype dtype, gsel_op op, int32_t root, uint64_t count,
                     std::string_view operation) {
  if (kind == GSEL_COLLECTIVE_BARRIER) return "barrier()";
  if (kind == GSEL_COLLECTIVE_ALLTOALLV) return fmt::format("alltoallv({})", dtype_name(dtype));
  std::string text = fmt::format("{}({}count {}, {}", collective_name(kind), takes_counts(kind) ? "total " : "", count,
                                 dtype_name(dtype));
  if (is_reduction(kind)) text += fmt::format(", {}", operation.empty() ? operation_name(op) : operation);
  if (is_rooted(kind)) text += fmt::format(", root {}", root);
  if (kind == GSEL_COLLECTIVE_SEND || kind == GSEL_COLLECTIVE_SENDRECV) text += fmt::format(", to rank {}", root);
  if (kind == GSEL_COLLECTIVE_RECV) text += fmt::format(", from rank {}", root);
  return text + ")";
}

}  // namespace gsel
