// comm/call/collective.h: a table of the kinds of calls, used by checks, plans, the recorder and explanations; and the
// text of a call in errors, such as `allreduce(count 16, f32, sum)`. Does not know how bytes travel.
#pragma once

#include <gsel/comm.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace gsel {

// Extent of a buffer of a call.
//   part         count elements
//   all          count elements for each rank
//   parts        counts[r] elements for each rank r, at offsets[r]
//   own_part     counts[this rank] elements
//   recv_count   recv_count elements
enum class Reach : uint8_t { none, part, all, parts, own_part, recv_count };

// How a call is made in place: send equals recv; send is this rank's part of recv; recv is this rank's part of send.
enum class InPlace : uint8_t { equal, part_of_recv, part_of_send, never };

struct CollectiveRow {
  const char* name;
  Reach send, recv;
  InPlace in_place = InPlace::equal;
  bool reduces = false;                            // false: copies
  bool sent_by_root = false, got_by_root = false;  // by the root only
  bool message = false;                            // between two ranks
  bool receives = false, probes = false;           // a probe finds a message and leaves it
  gsel_collective_kind with_counts = -1;           // the kind that does the same with counts by rank

  constexpr bool rooted() const { return sent_by_root || got_by_root; }
  // The count arrays of the v kinds. A reduction has one array, the same on all ranks, that divides both buffers.
  constexpr bool counted() const { return send == Reach::parts || recv == Reach::parts; }
  constexpr bool takes_send_counts() const { return send == Reach::parts && !reduces; }
  constexpr bool takes_recv_counts() const { return counted() && (reduces || recv == Reach::parts); }
  // Whether the caller may give an address for each part.
  constexpr bool has_send_parts() const { return send == Reach::all || send == Reach::parts; }
  constexpr bool has_recv_parts() const { return recv == Reach::all || recv == Reach::parts; }
  // The counts that divide the send buffer.
  constexpr const uint64_t* counts_of_send(const gsel_collective& call) const {
    return takes_send_counts() ? call.send_counts : call.recv_counts;
  }
  // Each reader gets different bytes from one owner.
  constexpr bool parts_differ() const { return !reduces && (send == Reach::all || send == Reach::parts); }
};

extern const CollectiveRow kCollectives[GSEL_COLLECTIVE_KINDS];  // by kind

// `kind` must be known.
inline const CollectiveRow& row_of(gsel_collective_kind kind) {
  return kCollectives[static_cast<size_t>(kind)];
}
inline bool is_known(gsel_collective_kind kind) {
  return kind >= 0 && kind < GSEL_COLLECTIVE_KINDS;
}
inline bool is_reduction(gsel_collective_kind kind) {
  return is_known(kind) && row_of(kind).reduces;
}
inline bool is_point_to_point(gsel_collective_kind kind) {
  return is_known(kind) && row_of(kind).message;
}
const char* collective_name(gsel_collective_kind kind);  // "unknown" when unknown

// Error text: the rank named `one` waits in a message and the rank named `other` in a collective. shown: the number of
// `one` in errors.
std::string crossed_text(std::string_view one, std::string_view message, int32_t shown, std::string_view other,
                         std::string_view collective);

// `operation`: its name, needed if `op` is of another process; `tag`: of a message.
std::string describe(gsel_collective_kind kind, gsel_dtype dtype, gsel_op op, int32_t root, uint64_t count,
                     std::string_view operation = {}, int32_t tag = 0);

}  // namespace gsel
