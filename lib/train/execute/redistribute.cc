// train/execute/redistribute.cc: see redistribute.h.
#include "train/execute/redistribute.h"

#include <algorithm>

#include "base/dtype.h"
#include "model/views.h"

namespace gsel {
namespace {

bool all_alike(const std::vector<uint64_t>& counts) {
  return std::ranges::all_of(counts, [&](uint64_t n) { return n == counts.front(); });
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

void Redistributor::copy(void* dst, const void* src, uint64_t bytes) const {
  if (dst != src) device_->copy(dst, src, bytes, GSEL_COPY_ON_DEVICE);
}

void Redistributor::copy_rows(void* dst, const void* src, const Rows& rows, gsel_dtype dtype) const {
  const uint64_t size = dtype_bytes(dtype), row = static_cast<uint64_t>(rows.row) * size;
  const uint64_t to = static_cast<uint64_t>(rows.dst_stride) * size,
                 from = static_cast<uint64_t>(rows.src_stride) * size;
  if (to == row && from == row) return copy(dst, src, row * static_cast<uint64_t>(rows.count));
  device_->enqueue(&gsel_device_v1::copy_rows, dst, to, src, from, row, static_cast<uint64_t>(rows.count));
}

// ---- packing -----------------------------------------------------------------------------------------------------

const Redistributor::Parts& Redistributor::parts_of(int32_t v, int32_t tensor, bool whole, int64_t n) {
  const auto [it, is_new] = parts_.try_emplace({v, tensor, whole, n});
  Parts& parts = it->second;
  if (!is_new) return parts;
  const Value& value = model_.values()[tensor];
  const std::vector<int64_t> dims = whole ? whole_batch_dims(value, n) : batch_dims(value, n);
  parts.value = v;
  for (const Shard& shard : shards_[v]) {
    parts.rows.push_back(rows_of(dims, shard));
    parts.counts.push_back(static_cast<uint64_t>(parts.rows.back().count * parts.rows.back().length));
    parts.contiguous = parts.rows.back().count == 1;
  }
  return parts;
}

const void* Redistributor::cut(const Parts& parts, const void* tensor, void* room) const {
  if (parts.contiguous) return tensor;
  const gsel_dtype dtype = model_.values()[parts.value].dtype;
  const uint64_t size = dtype_bytes(dtype);
  auto* to = static_cast<char*>(room);
  for (size_t i = 0; i < parts.rows.size(); to += parts.counts[i++] * size) {
    const ShardRows& rows = parts.rows[i];
    copy_rows(to, static_cast<const char*>(tensor) + static_cast<uint64_t>(rows.first) * size,
              {rows.length, rows.stride, rows.length, rows.count}, dtype);
  }
  return room;
}

void Redistributor::join(const Parts& parts, const void* room, void* tensor) const {
  if (parts.contiguous) return;
  const gsel_dtype dtype = model_.values()[parts.value].dtype;
  const uint64_t size = dtype_bytes(dtype);
  const auto* from = static_cast<const char*>(room);
  for (size_t i = 0; i < parts.rows.size(); from += parts.counts[i++] * size) {
    const ShardRows& rows = parts.rows[i];
    copy_rows(static_cast<char*>(tensor) + static_cast<uint64_t>(rows.first) * size, from,
              {rows.stride, rows.length, rows.length, rows.count}, dtype);
  }
}

// ---- redistributions --------------------------------------------------------------------------------------------

void Redistributor::run(const RedistributionJob& job, const Call& call) {
  const Value& from = model_.values()[job.from];
  if (ranks_ == 1 || job.redistribution == Redistribution::none)
    return copy(job.dst, job.src, value_bytes(from, job.n_samples));
  switch (job.redistribution) {
    case Redistribution::allreduce:
      return call(make_collective(GSEL_COLLECTIVE_ALLREDUCE, job.src, job.dst,
                                  static_cast<uint64_t>(value_elems(from, job.n_samples)), from.dtype, GSEL_SUM));
    case Redistribution::allgather:
      return gather(job, call);
    case Redistribution::reduce_scatter:
      return scatter(job, call);
    case Redistribution::slice:
      return take_slice(job);
    default:
      return exchange(job, call);
  }
}

void Redistributor::gather(const RedistributionJob& job, const Call& call) {
  const Value& from = model_.values()[job.from];
  const Parts& all = parts_of(job.from, job.to, true, job.n_samples);
  void* came = all.contiguous ? job.dst : job.packing;
  gsel_collective gather = make_collective(GSEL_COLLECTIVE_ALLGATHER, job.src, came,
                                           static_cast<uint64_t>(value_elems(from, job.n_samples)), from.dtype);
  if (!all_alike(all.counts)) {
    gather.kind = GSEL_COLLECTIVE_ALLGATHERV;
    gather.recv_counts = all.counts.data();
  }
  call(gather);
  join(all, came, job.dst);
}

void Redistributor::scatter(const RedistributionJob& job, const Call& call) {
  const Value& to = model_.values()[job.to];
  const Parts& all = parts_of(job.to, job.from, true, job.n_samples);
  gsel_collective scatter = make_collective(GSEL_COLLECTIVE_REDUCE_SCATTER, cut(all, job.src, job.packing), job.dst,
                                            static_cast<uint64_t>(value_elems(to, job.n_samples)), to.dtype, GSEL_SUM);
  if (!all_alike(all.counts)) {
    scatter.kind = GSEL_COLLECTIVE_REDUCE_SCATTERV;
    scatter.recv_counts = all.counts.data();
  }
  call(scatter);
}

void Redistributor::take_slice(const RedistributionJob& job) const {
  const Value& to = model_.values()[job.to];
  const ShardRows rows = rows_of(whole_batch_dims(to, job.n_samples), to.shard);
  copy_rows(job.dst, static_cast<const char*>(job.src) + static_cast<uint64_t>(rows.first) * dtype_bytes(to.dtype),
            {rows.length, rows.stride, rows.length, rows.count}, to.dtype);
}

// Sends each rank its future shard from this rank's tensor; receives from each rank its shard of this rank's future
// tensor.
void Redistributor::exchange(const RedistributionJob& job, const Call& call) {
  const Value &from = model_.values()[job.from], &to = model_.values()[job.to];
  const Parts &given = parts_of(job.to, job.from, false, job.n_samples),
              &taken = parts_of(job.from, job.to, false, job.n_samples);
  const uint64_t begin = packing_of(job.redistribution, from, to, job.n_samples, ranks_).send_bytes;
  void* came = taken.contiguous ? job.dst : static_cast<char*>(job.packing) + begin;
  gsel_collective all = make_collective(GSEL_COLLECTIVE_ALLTOALL, cut(given, job.src, job.packing), came,
                                        given.counts.front(), from.dtype);
  if (!all_alike(given.counts) || !all_alike(taken.counts) || given.counts.front() != taken.counts.front()) {
    all.kind = GSEL_COLLECTIVE_ALLTOALLV;
    all.send_counts = given.counts.data();
    all.recv_counts = taken.counts.data();
  }
  call(all);
  join(taken, came, job.dst);
}

}  // namespace gsel
