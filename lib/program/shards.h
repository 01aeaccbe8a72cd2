// program/shards.h: which elements of a bucket each rank of its axis keeps. A pure function of the program, so that
// storage, counters and verifier agree.
#pragma once

#include "program/program.h"

namespace gsel {

int64_t bucket_elems(const Program& program, int32_t bucket);

// Bounds of the shards in elements of the bucket, one more than there are ranks on its axis; the last one is
// padded_elems. An unsharded bucket is one shard.
std::vector<int64_t> shard_bounds(const Program& program, int32_t bucket);

// The bucket's size with what makes its shards equal.
int64_t padded_elems(const Program& program, int32_t bucket);

// This rank's shard of a bucket; the whole of an unsharded one.
gsel_range own_shard(const Program& program, int32_t bucket);

// Whether the squares that a norm is made of are summed over the axis: it divides gradients, or parameters among
// ranks of a pipeline.
bool norm_sums_over(const Program& program, gsel_axis axis);

// Whether this rank steps the bucket.
bool steps_here(const Program& program, int32_t bucket);

}  // namespace gsel
