// program/shards.cc: see shards.h.
#include "program/shards.h"

#include <algorithm>

namespace gsel {
namespace {

// Elements of equal shards; the last ones extend into the padding.
int64_t equal_size(int64_t n_elems, int32_t ranks) {
  return (n_elems + ranks - 1) / ranks;
}

std::vector<int64_t> equal_bounds(int64_t n_elems, int32_t ranks) {
  const int64_t size = equal_size(n_elems, ranks);
  std::vector<int64_t> bounds;
  for (int32_t i = 0; i <= ranks; ++i) bounds.push_back(size * i);
  return bounds;
}

// A parameter goes to the rank whose equal shard has the parameter's middle, which keeps shards in order.
std::vector<int64_t> whole_param_bounds(const Program& program, const ProgramBucket& bucket, int64_t n_elems,
                                        int32_t ranks) {
  std::vector<int64_t> bounds(static_cast<size_t>(ranks) + 1, n_elems);
  bounds[0] = 0;
  int64_t first = 0;
  int32_t rank = 0;
  for (int32_t p : bucket.params) {
    const int64_t size = program.params[p].n_elems;
    while (rank + 1 < ranks &&
           static_cast<__int128>(2 * first + size) * ranks >= static_cast<__int128>(2 * n_elems) * (rank + 1))
      bounds[++rank] = first;
    first += size;
  }
  return bounds;
}

}  // namespace

int64_t bucket_elems(const Program& program, int32_t bucket) {
  int64_t n = 0;
  for (int32_t p : program.buckets[bucket].params) n += program.params[p].n_elems;
  return n;
}

std::vector<int64_t> shard_bounds(const Program& program, int32_t bucket) {
  const ProgramBucket& b = program.buckets[bucket];
  const int64_t n_elems = bucket_elems(program, bucket);
  if (!b.shards_state()) return {0, n_elems};
  const int32_t ranks = program.mesh.size[b.axis];
  return b.flags & GSEL_BUCKET_WHOLE_PARAMS ? whole_param_bounds(program, b, n_elems, ranks)
                                            : equal_bounds(n_elems, ranks);
}

int64_t padded_elems(const Program& program, int32_t bucket) {
  const ProgramBucket& b = program.buckets[bucket];
  const int64_t n_elems = bucket_elems(program, bucket);
  if (!b.shards_state() || (b.flags & GSEL_BUCKET_WHOLE_PARAMS)) return n_elems;
  const int32_t ranks = program.mesh.size[b.axis];
  return equal_size(n_elems, ranks) * ranks;
}

gsel_range own_shard(const Program& program, int32_t bucket) {
  const ProgramBucket& b = program.buckets[bucket];
  if (!b.shards_state()) return {0, bucket_elems(program, bucket)};
  const int32_t coordinate = program.mesh.coordinate(program.rank, b.axis);
  if (b.flags & GSEL_BUCKET_WHOLE_PARAMS) {
    const std::vector<int64_t> bounds = shard_bounds(program, bucket);
    return {bounds[coordinate], bounds[coordinate + 1]};
  }
  const int64_t size = equal_size(bucket_elems(program, bucket), program.mesh.size[b.axis]);
  return {size * coordinate, size * (coordinate + 1)};
}

bool norm_sums_over(const Program& program, gsel_axis axis) {
  if (program.mesh.size[axis] == 1) return false;
  if (axis != GSEL_AXIS_DATA) return true;
  return std::ranges::any_of(program.buckets,
                             [&](const ProgramBucket& b) { return b.axis == axis && b.divides_state(); });
}

bool steps_here(const Program& program, int32_t bucket) {
  const ProgramBucket& b = program.buckets[bucket];
  return b.owner < 0 || program.mesh.coordinate(program.rank, b.axis) == b.owner;
}

}  // namespace gsel
