// comm/describe.h: calls as text, for errors that quote them: `allreduce(count 16, f32, sum)`.
#pragma once

#include <gsel/comm.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace gsel {

const char* collective_name(gsel_collective_kind kind);  // "unknown" when unknown
namespace kinds {
template <class... Kinds>
constexpr uint32_t set_of(Kinds... kind) {
  return (0u | ... | (1u << kind));
}
constexpr uint32_t kReductions = set_of(GSEL_COLLECTIVE_ALLREDUCE, GSEL_COLLECTIVE_REDUCE,
                                        GSEL_COLLECTIVE_REDUCE_SCATTER, GSEL_COLLECTIVE_REDUCE_SCATTERV);
constexpr uint32_t kRooted = set_of(GSEL_COLLECTIVE_BROADCAST, GSEL_COLLECTIVE_REDUCE, GSEL_COLLECTIVE_GATHER,
                                    GSEL_COLLECTIVE_SCATTER, GSEL_COLLECTIVE_GATHERV, GSEL_COLLECTIVE_SCATTERV);
constexpr uint32_t kCounted = set_of(GSEL_COLLECTIVE_REDUCE_SCATTERV, GSEL_COLLECTIVE_ALLGATHERV,
                                     GSEL_COLLECTIVE_GATHERV, GSEL_COLLECTIVE_SCATTERV, GSEL_COLLECTIVE_ALLTOALLV);
constexpr uint32_t kProbes = set_of(GSEL_COLLECTIVE_PROBE, GSEL_COLLECTIVE_IPROBE);
constexpr uint32_t kReceives = set_of(GSEL_COLLECTIVE_RECV, GSEL_COLLECTIVE_SENDRECV) | kProbes;
constexpr uint32_t kPointToPoint = set_of(GSEL_COLLECTIVE_SEND) | kReceives;
constexpr bool has(uint32_t set, gsel_collective_kind kind) {
  return static_cast<uint32_t>(kind) < GSEL_COLLECTIVE_KINDS && (set >> kind & 1u) != 0;
}
}  // namespace kinds

constexpr bool is_reduction(gsel_collective_kind kind) {
  return kinds::has(kinds::kReductions, kind);
}
constexpr bool is_rooted(gsel_collective_kind kind) {
  return kinds::has(kinds::kRooted, kind);
}
constexpr bool takes_counts(gsel_collective_kind kind) {  // the v kinds
  return kinds::has(kinds::kCounted, kind);
}
constexpr bool is_point_to_point(gsel_collective_kind kind) {
  return kinds::has(kinds::kPointToPoint, kind);
}
// Looks for a message; of them, does not take it.
constexpr bool receives_message(gsel_collective_kind kind) {
  return kinds::has(kinds::kReceives, kind);
}
constexpr bool is_probe(gsel_collective_kind kind) {
  return kinds::has(kinds::kProbes, kind);
}
// `operation` is what to call it where its number is of no meaning here; `tag` a message's.
std::string describe(gsel_collective_kind kind, gsel_dtype dtype, gsel_op op, int32_t root, uint64_t count,
                     std::string_view operation = {}, int32_t tag = 0);

}  // namespace gsel
