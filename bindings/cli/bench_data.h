// bench_data.h: the contents of the benchmark's buffers, and the number of wrong elements in a result. Inputs are small
// whole numbers whose reductions every type holds exactly, so results are compared bit by bit. They repeat after a
// prime number of elements, so that a shard in a wrong place is noticed. Does not use the library's own reductions.
#pragma once

#include <gsel/comm.h>

#include <cstdint>
#include <vector>

namespace gsel::cli {

class BenchData {
 public:
  BenchData(gsel_dtype dtype, bool reduces, gsel_op op, int32_t ranks);
  // Writes elements [begin, begin + count) of a rank's input.
  void fill(void* to, int32_t rank, uint64_t begin, uint64_t count) const;
  // The number of elements of `got` that differ from a rank's input, or, if rank is -1, from the reduction.
  uint64_t wrong(const void* got, int32_t rank, uint64_t begin, uint64_t count) const;

 private:
  using Pattern = std::vector<unsigned char>;
  const Pattern& pattern(int32_t rank) const { return rank < 0 ? reduced_ : inputs_[static_cast<size_t>(rank)]; }
  size_t element_;
  std::vector<Pattern> inputs_;
  Pattern reduced_;
};

}  // namespace gsel::cli
