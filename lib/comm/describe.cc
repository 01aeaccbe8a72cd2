// comm/describe.cc: see describe.h.
#include "comm/describe.h"

#include <fmt/format.h>

#include "base/dtype.h"
#include "comm/operation.h"

namespace gsel {

const char* collective_name(gsel_collective_kind kind) {
  static const char* const names[GSEL_COLLECTIVE_KINDS] = {
      "barrier",  "allreduce", "reduce_scatter", "allgather", "broadcast",       "send",       "recv",
      "reduce",   "gather",    "scatter",        "alltoall",  "reduce_scatterv", "allgatherv", "gatherv",
      "scatterv", "alltoallv", "sendrecv",       "probe",     "iprobe"};
  return kind >= 0 && kind < GSEL_COLLECTIVE_KINDS ? names[kind] : "unknown";
}

namespace {

std::string sender_text(int32_t rank) {
  return rank == GSEL_ANY_RANK ? "from any rank" : fmt::format("from rank {}", rank);
}

// A tag of 0 is that of calls that name none; those below any are the library's own.
std::string tag_text(int32_t tag) {
  if (tag == 0 || tag < GSEL_ANY_TAG) return {};
  return tag == GSEL_ANY_TAG ? ", any tag" : fmt::format(", tag {}", tag);
}

}  // namespace

std::string describe(gsel_collective_kind kind, gsel_dtype dtype, gsel_op op, int32_t root, uint64_t count,
                     std::string_view operation, int32_t tag) {
  if (kind == GSEL_COLLECTIVE_BARRIER) return "barrier()";
  if (is_probe(kind)) return fmt::format("{}({}{})", collective_name(kind), sender_text(root), tag_text(tag));
  if (kind == GSEL_COLLECTIVE_ALLTOALLV) return fmt::format("alltoallv({})", dtype_name(dtype));
  std::string text = fmt::format("{}({}count {}, {}", collective_name(kind), takes_counts(kind) ? "total " : "", count,
                                 dtype_name(dtype));
  if (is_reduction(kind)) text += fmt::format(", {}", operation.empty() ? operation_name(op) : operation);
  if (is_rooted(kind)) text += fmt::format(", root {}", root);
  if (kind == GSEL_COLLECTIVE_SEND || kind == GSEL_COLLECTIVE_SENDRECV) text += fmt::format(", to rank {}", root);
  if (kind == GSEL_COLLECTIVE_RECV) text += ", " + sender_text(root);
  if (is_point_to_point(kind)) text += tag_text(tag);
  return text + ")";
}

}  // namespace gsel
