// train/execute/redistribute.cc: redistributions (redistribute.h), and the instructions of the library's own layers
// that make them: in forward they change a value's placement on the sharing axis, in backward that of its gradient. If
// nothing has to be done, or a sum can be made in place, both values share memory (train/state/arena_plan.h).
#include "train/execute/redistribute.h"

#include <algorithm>

#include "base/types.h"
#include "model/views.h"
#include "train/execute/instructions.h"

namespace gsel {
namespace {

bool all_equal(const std::vector<uint64_t>& counts) {
  return std::ranges::all_of(counts, [&](uint64_t n) { return n == counts.front(); });
}

const char* at(const void* tensor, int64_t elems, gsel_dtype dtype) {
  return static_cast<const char*>(tensor) + static_cast<uint64_t>(elems) * dtype_bytes(dtype);
}

}  // namespace

Redistributor::Redistributor(std::shared_ptr<DeviceContext> device, const Model& model, int32_t ranks)
    : device_(std::move(device)), model_(model), ranks_(ranks), shards_(model.values().size()) {}

// Only the bounds of shards differ between ranks.
void Redistributor::connect(Communicator& axis) {
  const size_t n = 2 * shards_.size();
  std::vector<int64_t> mine, all(n * static_cast<size_t>(ranks_));
  for (const Value& v : model_.values()) mine.insert(mine.end(), {v.shard.begin, v.shard.end});
  axis.collective_on_host(make_collective(GSEL_COLLECTIVE_ALLGATHER, mine.data(), all.data(), n, GSEL_I64));
  for (size_t v = 0; v < shards_.size(); ++v) {
    const Shard& here = model_.values()[v].shard;
    for (size_t coordinate = 0; coordinate < static_cast<size_t>(ranks_) && !here.is_whole(); ++coordinate) {
      Shard shard = here;
      shard.begin = all[coordinate * n + 2 * v];
      shard.end = all[coordinate * n + 2 * v + 1];
      shards_[v].push_back(shard);
    }
  }
}

// ---- once for each program ---------------------------------------------------------------------------------------

Redistributor::Shards Redistributor::divide(const std::vector<int64_t>& dims, int32_t v) const {
  Shards shards;
  for (const Shard& shard : shards_[static_cast<size_t>(v)]) {
    shards.rows.push_back(rows_of(dims, shard));
    shards.counts.push_back(static_cast<uint64_t>(shards.rows.back().count * shards.rows.back().length));
  }
  if (!shards.rows.empty() && shards.rows.back().count == 1) shards.rows.clear();
  return shards;
}

// An all-to-all sends each rank its future shard from this rank's tensor, and receives from each rank its shard of this
// rank's future tensor.
ResolvedRedistribution Redistributor::resolve(Redistribution redistribution, int32_t from, int32_t to,
                                              int64_t n) const {
  const Value &source = model_.values()[from], &result = model_.values()[to];
  ResolvedRedistribution r;
  r.redistribution = ranks_ == 1 ? Redistribution::none : redistribution;
  r.dtype = source.dtype;
  r.bytes = static_cast<uint64_t>(value_bytes(source, n));
  auto make = [&](gsel_collective_kind kind, uint64_t count, gsel_op op) {
    r.call = make_collective(kind, nullptr, nullptr, count, r.dtype, op);
    r.call.label = {source.name.data(), source.name.size()};
  };
  const auto source_elems = static_cast<uint64_t>(value_elems(source, n)),
             result_elems = static_cast<uint64_t>(value_elems(result, n));
  switch (r.redistribution) {
    case Redistribution::none:
      break;
    case Redistribution::slice:
      r.slice = rows_of(whole_batch_dims(result, n), result.shard);
      break;
    case Redistribution::allreduce:
      make(GSEL_COLLECTIVE_ALLREDUCE, source_elems, GSEL_SUM);
      break;
    case Redistribution::allgather: {
      make(GSEL_COLLECTIVE_ALLGATHER, source_elems, 0);
      auto [rows, counts] = divide(whole_batch_dims(result, n), from);
      r.unpacked = std::move(rows);
      if (all_equal(counts)) break;
      r.call.kind = GSEL_COLLECTIVE_ALLGATHERV;
      r.recv_counts = std::move(counts);
      break;
    }
    case Redistribution::reduce_scatter: {
      make(GSEL_COLLECTIVE_REDUCE_SCATTER, result_elems, GSEL_SUM);
      auto [rows, counts] = divide(whole_batch_dims(source, n), to);
      r.packed = std::move(rows);
      if (all_equal(counts)) break;
      r.call.kind = GSEL_COLLECTIVE_REDUCE_SCATTERV;
      r.recv_counts = std::move(counts);
      break;
    }
    case Redistribution::alltoall: {
      auto [sent, send_counts] = divide(batch_dims(source, n), to);
      auto [received, recv_counts] = divide(batch_dims(result, n), from);
      make(GSEL_COLLECTIVE_ALLTOALL, send_counts.front(), 0);
      r.packed = std::move(sent);
      r.unpacked = std::move(received);
      r.received_at = packing_of(redistribution, source, result, n, ranks_).send_bytes;
      if (all_equal(send_counts) && all_equal(recv_counts) && send_counts.front() == recv_counts.front()) break;
      r.call.kind = GSEL_COLLECTIVE_ALLTOALLV;
      r.send_counts = std::move(send_counts);
      r.recv_counts = std::move(recv_counts);
      break;
    }
  }
  if (!r.send_counts.empty()) r.call.send_counts = r.send_counts.data();
  if (!r.recv_counts.empty()) r.call.recv_counts = r.recv_counts.data();
  return r;
}

// ---- in each step ------------------------------------------------------------------------------------------------

void Redistributor::copy(void* dst, const void* src, uint64_t bytes) const {
  if (dst != src) device_->copy(dst, src, bytes, GSEL_COPY_ON_DEVICE);
}

// Strides in elements.
void Redistributor::copy_rows(void* dst, int64_t dst_stride, const void* src, int64_t src_stride, const ShardRows& rows,
                              gsel_dtype dtype) const {
  const uint64_t size = dtype_bytes(dtype), row = static_cast<uint64_t>(rows.length) * size,
                 count = static_cast<uint64_t>(rows.count);
  const uint64_t to = static_cast<uint64_t>(dst_stride) * size, from = static_cast<uint64_t>(src_stride) * size;
  if (to == row && from == row) return copy(dst, src, row * count);
  device_->enqueue(&gsel_device_v1::copy_rows, dst, to, src, from, row, count);
}

void Redistributor::pack(const std::vector<ShardRows>& shards, const void* tensor, void* packed,
                         gsel_dtype dtype) const {
  int64_t done = 0;
  for (const ShardRows& rows : shards) {
    copy_rows(const_cast<char*>(at(packed, done, dtype)), rows.length, at(tensor, rows.first, dtype), rows.stride, rows,
              dtype);
    done += rows.count * rows.length;
  }
}

void Redistributor::unpack(const std::vector<ShardRows>& shards, const void* packed, void* tensor,
                           gsel_dtype dtype) const {
  int64_t done = 0;
  for (const ShardRows& rows : shards) {
    copy_rows(const_cast<char*>(at(tensor, rows.first, dtype)), rows.stride, at(packed, done, dtype), rows.length, rows,
              dtype);
    done += rows.count * rows.length;
  }
}

void Redistributor::run(const ResolvedRedistribution& how, const Buffers& buffers, const Call& call) const {
  const auto& [src, dst, packing] = buffers;
  if (how.redistribution == Redistribution::none) return copy(dst, src, how.bytes);
  if (how.redistribution == Redistribution::slice)
    return copy_rows(dst, how.slice.length, at(src, how.slice.first, how.dtype), how.slice.stride, how.slice,
                     how.dtype);
  pack(how.packed, src, packing, how.dtype);
  gsel_collective ready = how.call;
  ready.send = how.packed.empty() ? src : packing;
  ready.recv = how.unpacked.empty() ? dst : static_cast<char*>(packing) + how.received_at;
  call(ready);
  unpack(how.unpacked, ready.recv, dst, how.dtype);
}

}  // namespace gsel

namespace gsel::execute {
namespace {

void redistribute(State& s, const gsel_instr& instr, const void* src, void* dst) {
  auto make = [&](const gsel_collective& call) {
    call_now(s, instr_row(instr.kind).counted_under, s.sharing_axis(), call);
  };
  s.redistributor.run(*s.run->redistribution(), {src, dst, s.at(s.operands().packing)},
                      std::ref(make));  // allocates nothing
}

// Only this layer reads the output's gradient. If that becomes the input's gradient in place, it is the first
// contribution as it is, or is added to earlier ones.
void redistribute_gradient(State& s, const gsel_instr& instr, int32_t to) {
  const ArenaOperands& operands = s.operands();
  const int32_t mb = instr.microbatch;
  void* src = s.at(operands.outputs[0].gradient);
  const bool in_place = stays_in_place(s.run->redistribution()->redistribution, s.axis_size(s.sharing_axis()));
  redistribute(s, instr, src, in_place ? src : s.at(operands.inputs[0].contribution()));
  if (!in_place) return finish_contribution(s, operands.inputs[0], to, mb);
  const Value& value = s.model.values()[to];
  if (void* sum = s.at(operands.inputs[0].gradient); sum != src)
    s.add(sum, src, value.dtype, static_cast<uint64_t>(value_elems(value, s.program().microbatches[mb].count)));
}

}  // namespace

void redistribute_layer(State& s, const gsel_instr& instr) {
  if (!s.is_empty(instr.microbatch)) {
    if (instr_row(instr.kind).input_half)
      redistribute_gradient(s, instr, s.layer_of(instr).inputs.front());
    else
      redistribute(s, instr, s.at(s.operands().inputs[0].value), s.at(s.operands().outputs[0].value));
  }
  if (s.is_at_last_backward()) s.backward_done.record_compute();
}

}  // namespace gsel::execute
