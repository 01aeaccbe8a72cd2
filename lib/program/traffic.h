// program/traffic.h: the calls that a rank makes and the bytes that it sends in setup and in one step, per axis and
// kind of instruction, by closed forms (docs/program.md). The executor's counts must equal them. Does not know the
// optimizer: one that needs norms of parameters makes additional sums in STEP.
#pragma once

#include <gsel/comm.h>

#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "program/program.h"

namespace gsel {

// Messages count under the pipeline axis, phases of layers under FORWARD and BACKWARD_INPUT of their axis.
using Traffic = std::map<std::pair<gsel_axis, gsel_instr_kind>, gsel_comm_count>;

Traffic setup_traffic(const Program& program);
// Of one instruction.
Traffic traffic_of(const Program& program, const gsel_instr& instr);
// step: from 0. Default: a step after all compression has started.
Traffic step_traffic(const Program& program, int64_t step = std::numeric_limits<int64_t>::max());

// ---- compressed reductions -----------------------------------------------------------------------------------------

// A parameter of a bucket as a matrix: first dimension by the product of the others.
struct BucketMatrix {
  int32_t param = 0;
  int64_t first = 0;  // in elements of the bucket
  int64_t rows = 0, cols = 0;

  int64_t elems() const { return rows * cols; }
};

// GSEL_COMPRESS_LOW_RANK: matrices whose two factors are smaller than the matrix are compressed; the other parameters
// are sent uncompressed.
struct LowRankLayout {
  int64_t rank = 0;
  std::vector<BucketMatrix> matrices;
  std::vector<gsel_range> plain;  // uncompressed ranges of the bucket, in order
  int64_t matrix_elems = 0, plain_elems = 0;
  int64_t left_elems = 0, right_elems = 0;  // all left factors [rows][rank], all right factors [cols][rank]
};
LowRankLayout low_rank_layout(const Program& program, int32_t bucket);

// The all-reduces of an ALLREDUCE of the bucket, in order. compressing: from the bucket's compression_start on.
struct SentArray {
  int64_t elems = 0;
  gsel_dtype dtype = GSEL_F32;
  bool operator==(const SentArray&) const = default;
};
std::vector<SentArray> arrays_of_reduce(const Program& program, int32_t bucket, bool compressing);

}  // namespace gsel
