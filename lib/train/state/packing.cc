// train/state/packing.cc: see packing.h.
#include "train/state/packing.h"

#include <algorithm>
#include <set>

#include "base/align.h"
#include "base/types.h"
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

// backwards: the kinds of backward that the producer of the value has in the step.
bool is_read_again(const Model& model, int32_t v, const std::set<gsel_instr_kind>& backwards) {
  const Layer& producer = model.layers()[model.values()[v].producer];
  const size_t i = std::ranges::find(producer.outputs, v) - producer.outputs.begin();
  return producer.redistributes ||
         std::ranges::any_of(backwards, [&](gsel_instr_kind kind) { return producer.reads_output(kind, i); });
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
  std::vector<std::set<gsel_instr_kind>> backwards(model.layers().size());
  for (const gsel_instr& instr : program.step) {
    const InstrRow& row = instr_row(instr.kind);
    if (row.recomputes) recomputed[instr.layer] = true;
    if (row.task == InstrTask::backward) backwards[instr.layer].insert(instr.kind);
  }
  for (size_t l = 0; l < result.size(); ++l) {
    if (!model.layers()[l].redistributes) continue;
    const int32_t v = model.layers()[l].inputs.front(), producer = model.values()[v].producer;
    result[l] = producer >= 0 && model.values()[v].readers.size() == 1 &&
                !is_read_again(model, v, backwards[producer]) && (!recomputed[l] || recomputed[producer]);
  }
  return result;
}

}  // namespace gsel
