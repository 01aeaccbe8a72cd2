// program/compression.h: what an ALLREDUCE of a compressed bucket sends. A pure function of the program, so compressor,
// forecast and counters agree.
#pragma once

#include <vector>

#include "program/program.h"

namespace gsel {

// A parameter of a bucket as a matrix: first dimension by the product of the others.
struct BucketMatrix {
  int32_t param = 0;
  int64_t first = 0;  // in elements of the bucket
  int64_t rows = 0, cols = 0;

  int64_t elems() const { return rows * cols; }
};

// GSEL_COMPRESS_LOW_RANK: matrices whose two factors are smaller than the matrix are compressed; the other parameters
// are sent uncompressed.
struct LowRankParts {
  int64_t rank = 0;
  std::vector<BucketMatrix> matrices;
  std::vector<gsel_range> plain;  // uncompressed ranges of the bucket, in order
  int64_t matrix_elems = 0, plain_elems = 0;
  int64_t left_elems = 0, right_elems = 0;  // all left factors [rows][rank], all right factors [cols][rank]
};
LowRankParts low_rank_parts(const Program& program, int32_t bucket);

// The all-reduces of an ALLREDUCE of the bucket, in order. compressing: from the bucket's compression_start on.
struct SentArray {
  int64_t elems = 0;
  gsel_dtype dtype = GSEL_F32;
  bool operator==(const SentArray&) const = default;
};
std::vector<SentArray> arrays_of_reduce(const Program& program, int32_t bucket, bool compressing);

}  // namespace gsel
