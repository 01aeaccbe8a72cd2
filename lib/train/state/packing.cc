// train/state/packing.cc: see packing.h.
#include "train/state/packing.h"

#include <algorithm>
#include <array>

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

// Bytes to pack a tensor's shards; 0 if they are contiguous.
uint64_t packed_bytes(const std::vector<int64_t>& dims, const Shard& shard, gsel_dtype dtype) {
  if (rows_of(dims, shard).count == 1) return 0;
  return round_up(static_cast<uint64_t>(product(dims)) * dtype_bytes(dtype), kTensorAlign);
}

constexpr gsel_instr_kind kBackwards[] = {GSEL_BACKWARD, GSEL_BACKWARD_INPUT, GSEL_BACKWARD_WEIGHT};
using Backwards = std::array<bool, std::size(kBackwards)>;

// runs: which backwards the producer of a value has in the step.
bool is_read_again(const Model& model, int32_t v, const Backwards& runs) {
  const Layer& producer = model.layers()[model.values()[v].producer];
  const size_t i = std::ranges::find(producer.outputs, v) - producer.outputs.begin();
  bool read = producer.redistributes;
  for (size_t k = 0; k < runs.size(); ++k) read = read || (runs[k] && producer.reads_output(kBackwards[k], i));
  return read;
}

}  // namespace

Packing packing_of(Redistribution redistribution, const Value& from, const Value& to, int64_t n, int32_t ranks) {
  if (ranks == 1) return {};
  switch (redistribution) {
    case Redistribution::allgather:
      return {0, packed_bytes(whole_batch_dims(to, n), from.shard, from.dtype)};
    case Redistribution::reduce_scatter:
      return {packed_bytes(whole_batch_dims(from, n), to.shard, from.dtype), 0};
    case Redistribution::alltoall:
      return {packed_bytes(batch_dims(from, n), to.shard, from.dtype),
              packed_bytes(batch_dims(to, n), from.shard, from.dtype)};
    default:
      return {};
  }
}

bool stays_in_place(Redistribution redistribution, int32_t ranks) {
  return ranks == 1 || redistribution == Redistribution::none || redistribution == Redistribution::allreduce;
}

std::vector<bool> sums_in_place(const Model& model, const Program& program) {
  std::vector<bool> recomputed(model.layers().size()), result(model.layers().size());
  std::vector<Backwards> runs(model.layers().size());
  for (const gsel_instr& instr : program.step) {
    if (instr.kind == GSEL_INSTR_RECOMPUTE) recomputed[instr.layer] = true;
    if (const auto* kind = std::ranges::find(kBackwards, instr.kind); kind != std::end(kBackwards))
      runs[instr.layer][kind - kBackwards] = true;
  }
  for (size_t l = 0; l < result.size(); ++l) {
    if (!model.layers()[l].redistributes) continue;
    const int32_t v = model.layers()[l].inputs.front(), producer = model.values()[v].producer;
    result[l] = producer >= 0 && model.values()[v].readers.size() == 1 && !is_read_again(model, v, runs[producer]) &&
                (!recomputed[l] || recomputed[producer]);
  }
  return result;
}

}  // namespace gsel
