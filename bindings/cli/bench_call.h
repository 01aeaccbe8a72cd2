// bench_call.h: one call of the bench at one size: its counts, which bytes of whose buffer end up where, and what it
// costs at least. Does not know: time and data.
#pragma once

#include <gsel/comm.h>

#include <cstdint>
#include <string>
#include <vector>

namespace gsel::cli {

struct BenchKind {
  const char* name;
  gsel_collective_kind kind;
  bool reduces;
  bool rooted;
  bool in_place;  // can be
};
const std::vector<BenchKind>& bench_kinds();
const BenchKind* find_bench_kind(const std::string& name);  // nullptr: there is none

// What a rank receives: elements of one rank's send buffer, or of what all of them are reduced to.
struct Segment {
  uint64_t at = 0, count = 0;
  int32_t from = -1;  // -1: reduced
  uint64_t begin = 0;
};

class BenchCall {
 public:
  // `bytes` is the size of the larger of a rank's buffers, as nccl-tests counts; rounded down to whole elements alike
  // on all ranks.
  BenchCall(const BenchKind& kind, uint64_t bytes, gsel_dtype dtype, gsel_op op, int32_t root, int32_t rank,
            int32_t ranks);
  BenchCall(const BenchCall&) = delete;
  BenchCall& operator=(const BenchCall&) = delete;

  const BenchKind& kind() const { return kind_; }
  uint64_t bytes() const { return total_ * element_; }
  uint64_t count() const {
    return counts_.empty() ? call_.count : total_;
  }                                                // as nccl-tests' column; of uneven parts all
  uint64_t sent() const { return sent_; }          // elements in this rank's send buffer
  uint64_t received() const { return received_; }  // elements in its recv buffer
  const std::vector<Segment>& segments() const { return segments_; }
  // Where the send buffer stands in the recv buffer when both are one, or the other way round.
  bool send_is_larger() const;
  uint64_t in_place_offset() const;  // elements
  gsel_collective on(void* send, void* recv) const;

  // Bytes that all ranks together must read and write; in place, what stands where it belongs is left out.
  double byte_floor(bool in_place) const;
  double bus_factor() const;

 private:
  void plan_even();
  void plan_uneven();
  Segment part(int32_t from, uint64_t at, uint64_t count, uint64_t begin) const { return {at, count, from, begin}; }
  uint64_t begin_of(int32_t rank) const;

  const BenchKind& kind_;
  int32_t root_, rank_, ranks_;
  uint64_t element_, total_ = 0, each_ = 0, sent_ = 0, received_ = 0;
  std::vector<uint64_t> counts_, receive_counts_;
  std::vector<Segment> segments_;
  gsel_collective call_ = GSEL_COLLECTIVE_INIT;
};

}  // namespace gsel::cli
