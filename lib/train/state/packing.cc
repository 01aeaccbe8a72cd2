// train/state/packing.cc: see packing.h.
#include "train/state/packing.h"

#include "base/align.h"
#include "base/dtype.h"
#include "model/views.h"

namespace gsel {
namespace {

int64_t product(const std::vector<int64_t>& dims) {
  int64_t elems = 1;
  for (int64_t d : dims) elems *= d;
  return elems;
}

// Bytes of a tensor whose parts are packed to be contiguous; none where they are.
uint64_t packed_bytes(const std::vector<int64_t>& dims, const Share& part, gsel_dtype dtype) {
  if (rows_of(dims, part).count == 1) return 0;
  return round_up(static_cast<uint64_t>(product(dims)) * dtype_bytes(dtype), kTensorAlign);
}

}  // namespace

Packing packing_of(Redistribution redistribution, const Value& from, const Value& to, int64_t n, int32_t ranks) {
  if (ranks == 1) return {};
  switch (redistribution) {
    case Redistribution::allgather:
      return {0, packed_bytes(whole_batch_dims(to, n), from.part, from.dtype)};
    case Redistribution::reduce_scatter:
      return {packed_bytes(whole_batch_dims(from, n), to.part, from.dtype), 0};
    case Redistribution::alltoall:
      return {packed_bytes(batch_dims(from, n), to.part, from.dtype),
              packed_bytes(batch_dims(to, n), from.part, from.dtype)};
    default:
      return {};
  }
}

bool stays_in_place(Redistribution redistribution, int32_t ranks) {
  return ranks == 1 || redistribution == Redistribution::none || redistribution == Redistribution::allreduce;
}

}  // namespace gsel
