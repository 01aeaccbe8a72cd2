// bench_call.h: one call of the benchmark with one size: its counts, the origin of each byte of its result, and its
// least cost. Does not know times or data.
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
  bool in_place;  // in-place calls are possible
};
const std::vector<BenchKind>& bench_kinds();
const BenchKind* find_bench_kind(const std::string& name);  // nullptr: unknown

// Part of a rank's result: elements of one rank's send buffer, or of the reduction of all.
struct Segment {
  uint64_t at = 0, count = 0;
  int32_t from = -1;  // -1: reduced
  uint64_t begin = 0;
};

class BenchCall {
 public:
  // `bytes` is the size of the larger buffer of a rank, as in nccl-tests; rounded down to whole elements, equally on
  // all ranks.
  BenchCall(const BenchKind& kind, uint64_t bytes, gsel_dtype dtype, gsel_op op, int32_t root, int32_t rank,
            int32_t ranks);
  BenchCall(const BenchCall&) = delete;
  BenchCall& operator=(const BenchCall&) = delete;

  const BenchKind& kind() const { return kind_; }
  uint64_t bytes() const { return total_ * element_; }
  uint64_t count() const {
    return counts_.empty() ? call_.count : total_;
  }                                                // as in nccl-tests' column; for uneven shards the total
  uint64_t sent() const { return sent_; }          // elements in this rank's send buffer
  uint64_t received() const { return received_; }  // elements in its recv buffer
  const std::vector<Segment>& segments() const { return segments_; }
  // Which buffer contains the other one in an in-place call, and at which offset.
  bool send_is_larger() const;
  uint64_t in_place_offset() const;  // elements
  gsel_collective on(void* send, void* recv) const;

  // Bytes that all ranks together must read and write; in place, without data that is already where it belongs.
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
