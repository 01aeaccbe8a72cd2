// bench_data.h: what stands in the buffers of the bench, and how many elements of a result are wrong. Inputs are small
// whole numbers whose reductions every type holds exactly, so results are compared bit by bit. They repeat after a
// prime number of elements, so that a part that came to the wrong place shows. Does not know: the library's own
// folds.
#pragma once

#include <gsel/comm.h>

#include <cstdint>
#include <vector>

namespace gsel::cli {

class BenchData {
 public:
  BenchData(gsel_dtype dtype, bool reduces, gsel_op op, int32_t ranks);
  // Elements [begin, begin + count) of a rank's input.
  void fill(void* to, int32_t rank, uint64_t begin, uint64_t count) const;
  // Elements of `got` that are not those of a rank's input, or of the reduced ones where rank is -1.
  uint64_t wrong(const void* got, int32_t rank, uint64_t begin, uint64_t count) const;

 private:
  using Pattern = std::vector<unsigned char>;
  const Pattern& pattern(int32_t rank) const { return rank < 0 ? reduced_ : inputs_[static_cast<size_t>(rank)]; }
  size_t element_;
  std::vector<Pattern> inputs_;
  Pattern reduced_;
};

}  // namespace gsel::cli
