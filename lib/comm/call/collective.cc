// comm/call/collective.cc: see collective.h.
#include "comm/call/collective.h"

#include <fmt/format.h>

#include "base/types.h"
#include "comm/call/operation.h"

namespace gsel {

const CollectiveRow kCollectives[GSEL_COLLECTIVE_KINDS] = {
    {.name = "barrier", .send = Reach::none, .recv = Reach::none},
    {.name = "allreduce", .send = Reach::part, .recv = Reach::part, .reduces = true},
    {.name = "reduce_scatter",
     .send = Reach::all,
     .recv = Reach::part,
     .in_place = InPlace::part_of_send,
     .reduces = true,
     .with_counts = GSEL_COLLECTIVE_REDUCE_SCATTERV},
    {.name = "allgather",
     .send = Reach::part,
     .recv = Reach::all,
     .in_place = InPlace::part_of_recv,
     .with_counts = GSEL_COLLECTIVE_ALLGATHERV},
    {.name = "broadcast", .send = Reach::part, .recv = Reach::part, .sent_by_root = true},
    {.name = "send", .send = Reach::part, .recv = Reach::none, .message = true},
    {.name = "recv", .send = Reach::none, .recv = Reach::part, .message = true, .receives = true},
    {.name = "reduce", .send = Reach::part, .recv = Reach::part, .reduces = true, .got_by_root = true},
    {.name = "gather",
     .send = Reach::part,
     .recv = Reach::all,
     .in_place = InPlace::part_of_recv,
     .got_by_root = true,
     .with_counts = GSEL_COLLECTIVE_GATHERV},
    {.name = "scatter",
     .send = Reach::all,
     .recv = Reach::part,
     .in_place = InPlace::part_of_send,
     .sent_by_root = true,
     .with_counts = GSEL_COLLECTIVE_SCATTERV},
    {.name = "alltoall",
     .send = Reach::all,
     .recv = Reach::all,
     .in_place = InPlace::never,
     .with_counts = GSEL_COLLECTIVE_ALLTOALLV},
    {.name = "reduce_scatterv",
     .send = Reach::parts,
     .recv = Reach::own_part,
     .in_place = InPlace::part_of_send,
     .reduces = true},
    {.name = "allgatherv", .send = Reach::own_part, .recv = Reach::parts, .in_place = InPlace::part_of_recv},
    {.name = "gatherv",
     .send = Reach::own_part,
     .recv = Reach::parts,
     .in_place = InPlace::part_of_recv,
     .got_by_root = true},
    {.name = "scatterv",
     .send = Reach::parts,
     .recv = Reach::own_part,
     .in_place = InPlace::part_of_send,
     .sent_by_root = true},
    {.name = "alltoallv", .send = Reach::parts, .recv = Reach::parts, .in_place = InPlace::never},
    {.name = "sendrecv",
     .send = Reach::part,
     .recv = Reach::recv_count,
     .in_place = InPlace::never,
     .message = true,
     .receives = true},
    {.name = "probe", .send = Reach::none, .recv = Reach::none, .message = true, .receives = true, .probes = true},
    {.name = "iprobe", .send = Reach::none, .recv = Reach::none, .message = true, .receives = true, .probes = true},
};

const char* collective_name(gsel_collective_kind kind) {
  return is_known(kind) ? row_of(kind).name : "unknown";
}

namespace {

std::string sender_text(int32_t rank) {
  return rank == GSEL_ANY_RANK ? "from any rank" : fmt::format("from rank {}", rank);
}

// Tag 0 is the default; tags below GSEL_ANY_TAG are internal.
std::string tag_text(int32_t tag) {
  if (tag == 0 || tag < GSEL_ANY_TAG) return {};
  return tag == GSEL_ANY_TAG ? ", any tag" : fmt::format(", tag {}", tag);
}

}  // namespace

std::string describe(gsel_collective_kind kind, gsel_dtype dtype, gsel_op op, int32_t root, uint64_t count,
                     std::string_view operation, int32_t tag) {
  if (!is_known(kind)) return "unknown";
  const CollectiveRow& row = row_of(kind);
  if (kind == GSEL_COLLECTIVE_BARRIER) return "barrier()";
  if (row.probes) return fmt::format("{}({}{})", row.name, sender_text(root), tag_text(tag));
  if (kind == GSEL_COLLECTIVE_ALLTOALLV) return fmt::format("alltoallv({})", dtype_name(dtype));
  std::string text =
      fmt::format("{}({}count {}, {}", row.name, row.counted() ? "total " : "", count, dtype_name(dtype));
  if (row.reduces) text += fmt::format(", {}", operation.empty() ? operation_name(op) : operation);
  if (row.rooted()) text += fmt::format(", root {}", root);
  if (row.message && row.send != Reach::none) text += fmt::format(", to rank {}", root);
  if (row.message && row.send == Reach::none) text += ", " + sender_text(root);
  if (row.message) text += tag_text(tag);
  return text + ")";
}

std::string crossed_text(std::string_view one, std::string_view message, int32_t shown, std::string_view other,
                         std::string_view collective) {
  return fmt::format(
      "{} called {}, {} called {}: each waits for the other; match the message, or make the collective on "
      "rank {} too",
      one, message, other, collective, shown);
}

}  // namespace gsel
