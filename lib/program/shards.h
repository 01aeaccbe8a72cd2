// program/shards.h: which elements of a bucket each rank of its axis keeps. A pure function of the program, so storage,
// counters and verifier agree.
#pragma once

#include "program/program.h"

namespace gsel {

int64_t bucket_elems(const Program& program, int32_t bucket);

// Shard bounds in elements of the bucket: [ranks + 1]; the last is padded_elems. An unsharded bucket has one shard.
std::vector<int64_t> shard_bounds(const Program& program, int32_t bucket);

// The bucket's size with padding to equal shards.
int64_t padded_elems(const Program& program, int32_t bucket);

// This rank's shard of a bucket; all of an unsharded one.
gsel_range own_shard(const Program& program, int32_t bucket);

// Whether a norm's sum of squares runs over the axis: if it shards gradients, or divides parameters among pipeline
// ranks.
bool norm_sums_over(const Program& program, gsel_axis axis);

// Whether this rank steps the bucket.
bool steps_here(const Program& program, int32_t bucket);

}  // namespace gsel
