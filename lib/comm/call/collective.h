// comm/call/collective.h: the kinds of calls, one row for each: its shape, its roles, what ranks must agree on, its
// text, as errors quote it: `allreduce(count 16, f32, sum)`. Checks, plans, the recorder and explanations read the row.
// Does not know how bytes travel.
#pragma once

#include <gsel/comm.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace gsel {

// How far a buffer of a call reaches.
//   part         count elements
//   all          count elements for each rank
//   parts        those of the counts, one for each rank, where the offsets say
//   own_part     this rank's of these counts
//   recv_count   recv_count elements
enum class Reach : uint8_t { none, part, all, parts, own_part, recv_count };

// Where send and recv may be one: they are equal; send is this rank's part of recv; recv is this rank's part of send.
enum class InPlace : uint8_t { equal, part_of_recv, part_of_send, never };

struct CollectiveRow {
  const char* name;
  Reach send, recv;
  InPlace in_place = InPlace::equal;
  bool reduces = false;                            // with an operation; else it copies
  bool sent_by_root = false, got_by_root = false;  // by the root alone
  bool message = false;                            // between two ranks
  bool receives = false, probes = false;           // a probe finds a message and leaves it

  constexpr bool rooted() const { return sent_by_root || got_by_root; }
  // The arrays of the v kinds that a call takes. Where ranks agree on one array of counts, both buffers are cut by it.
  constexpr bool counted() const { return send == Reach::parts || recv == Reach::parts; }
  constexpr bool takes_send_counts() const { return send == Reach::parts && !reduces; }
  constexpr bool takes_recv_counts() const { return counted() && (reduces || recv == Reach::parts); }
  // Whether the caller may give the parts by their places.
  constexpr bool has_send_parts() const { return send == Reach::all || send == Reach::parts; }
  constexpr bool has_recv_parts() const { return recv == Reach::all || recv == Reach::parts; }
  // Those that say how send is cut.
  constexpr const uint64_t* counts_of_send(const gsel_collective& call) const {
    return takes_send_counts() ? call.send_counts : call.recv_counts;
  }
  // Each reader gets other bytes of an owner.
  constexpr bool parts_differ() const { return !reduces && (send == Reach::all || send == Reach::parts); }
};

extern const CollectiveRow kCollectives[GSEL_COLLECTIVE_KINDS];  // by kind

// Of a known kind.
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

// A message of `one` against a collective of `other`: each by its rank's name and its call. shown: the number of `one`.
std::string crossed_text(std::string_view one, std::string_view message, int32_t shown, std::string_view other,
                         std::string_view collective);

// `operation` is what to call it where its number is of no meaning here; `tag` a message's.
std::string describe(gsel_collective_kind kind, gsel_dtype dtype, gsel_op op, int32_t root, uint64_t count,
                     std::string_view operation = {}, int32_t tag = 0);

}  // namespace gsel
