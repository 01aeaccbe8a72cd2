// program/compression.cc: see compression.h.
#include "program/compression.h"

#include "program/shards.h"

namespace gsel {

LowRankParts low_rank_parts(const Program& program, int32_t bucket) {
  const ProgramBucket& b = program.buckets[bucket];
  LowRankParts parts;
  parts.rank = b.compression_rank;
  int64_t first = 0;
  for (const int32_t p : b.params) {
    const ProgramParam& param = program.params[p];
    const BucketMatrix matrix{p, first, param.rows, param.n_elems / param.rows};
    const int64_t end = first + param.n_elems;
    if (static_cast<__int128>(parts.rank) * (matrix.rows + matrix.cols) < param.n_elems) {
      parts.matrices.push_back(matrix);
      parts.matrix_elems += param.n_elems;
      parts.left_elems += matrix.rows * parts.rank;
      parts.right_elems += matrix.cols * parts.rank;
    } else {
      if (!parts.plain.empty() && parts.plain.back().end == first)
        parts.plain.back().end = end;
      else
        parts.plain.push_back({first, end});
      parts.plain_elems += param.n_elems;
    }
    first = end;
  }
  return parts;
}

std::vector<SentArray> arrays_of_reduce(const Program& program, int32_t bucket, bool compressing) {
  const int64_t elems = bucket_elems(program, bucket);
  const int32_t compression = compressing ? program.buckets[bucket].compression : GSEL_COMPRESS_NONE;
  if (compression == GSEL_COMPRESS_F16) return {{elems, GSEL_F16}};
  if (compression == GSEL_COMPRESS_BF16) return {{elems, GSEL_BF16}};
  if (compression == GSEL_COMPRESS_LOW_RANK) {
    const LowRankParts parts = low_rank_parts(program, bucket);
    // Left factors are sent with the uncompressed parameters; right factors need the sum of the left ones first.
    if (!parts.matrices.empty())
      return {{parts.left_elems + parts.plain_elems, GSEL_F32}, {parts.right_elems, GSEL_F32}};
  }
  return {{elems, GSEL_F32}};
}

}  // namespace gsel
