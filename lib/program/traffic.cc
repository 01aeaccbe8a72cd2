// program/traffic.cc: see traffic.h. n is the number of ranks on the axis; bytes are those that other ranks read from
// this rank, as in gsel_comm_counts.
#include "program/traffic.h"

#include <algorithm>
#include <span>

#include "base/shard.h"
#include "base/types.h"
#include "program/redistribution.h"
#include "program/shards.h"
#include "program/stages.h"

namespace gsel {
namespace {

class Counter {
 public:
  Counter(const Program& program, int64_t step) : program_(program), step_(step) {}

  Traffic count(std::span<const gsel_instr> instrs) {
    for (const gsel_instr& instr : instrs) count(instr);
    return std::move(traffic_);
  }

 private:
  // Ranks that send data to each other, this rank's place among them, and the axis that they count under.
  struct Group {
    gsel_axis axis;
    int64_t ranks, own;
  };

  void count(const gsel_instr& instr) {
    const InstrRow* row = find_instr_row(instr.kind);
    if (!row) return;
    switch (row->peers) {
      case InstrPeers::nobody:
        return;
      case InstrPeers::peer:
        return message(*row, instr);
      case InstrPeers::layer:
        return layer(*row, instr);
      case InstrPeers::axis:
        if (row->task == InstrTask::scatter_gather) return scatter_gather(*row, instr);
        if (row->task == InstrTask::loss && instr.axis == GSEL_AXIS_PIPELINE) return losses(instr.kind);
        return send(*row, instr, along(instr.axis));
      case InstrPeers::tied: {
        const std::vector<int32_t> ranks = tied_ranks(program_, instr.bucket);
        const auto own = std::ranges::find(ranks, program_.rank);
        if (own != ranks.end()) send(*row, instr, {GSEL_AXIS_PIPELINE, std::ssize(ranks), own - ranks.begin()});
        return;
      }
      case InstrPeers::norm:
        for (gsel_axis axis = 0; axis < kAxes; ++axis)
          if (norm_sums_over(program_, axis)) send(*row, instr, along(axis));
    }
  }

  // ---- what a row says ----

  // Each array is a call.
  void send(const InstrRow& row, const gsel_instr& instr, const Group& group) {
    if (group.ranks < 2) return;
    auto array = [&](int64_t elems, gsel_dtype dtype) {
      add(group.axis, instr.kind, elems_sent(row.call, instr, group, elems) * static_cast<int64_t>(dtype_bytes(dtype)));
    };
    switch (row.data) {
      case InstrData::params: {
        const std::vector<int32_t>& params = program_.buckets[instr.bucket].params;
        return array(bucket_elems(program_, instr.bucket), program_.params[params.front()].dtype);
      }
      case InstrData::gradients: {
        const bool compressing = step_ >= program_.buckets[instr.bucket].compression_start;
        for (const SentArray& sent : arrays_of_reduce(program_, instr.bucket, compressing))
          array(sent.elems, sent.dtype);
        return;
      }
      case InstrData::stepped:
        return array(own_elems(instr.bucket), GSEL_F32);
      case InstrData::number:
        return array(1, GSEL_F64);
      case InstrData::loss:
        return array(2, GSEL_F64);
      default:
        return;
    }
  }

  int64_t elems_sent(gsel_collective_kind call, const gsel_instr& instr, const Group& group, int64_t elems) const {
    const bool is_root = group.own == instr.peer;
    switch (call) {
      case GSEL_COLLECTIVE_BROADCAST:
        return is_root ? (group.ranks - 1) * elems : 0;
      case GSEL_COLLECTIVE_ALLGATHER:
        return (group.ranks - 1) * own_elems(instr.bucket);
      case GSEL_COLLECTIVE_REDUCE_SCATTER:
        return padded_elems(program_, instr.bucket) - own_elems(instr.bucket);
      case GSEL_COLLECTIVE_REDUCE:
        // All but the slice reduced here, which goes to the root after its reduction.
        return elems - (is_root ? slice(group, elems) : 0);
      default:
        return all_reduced(group, elems);
    }
  }

  // ---- common ----

  int32_t size(gsel_axis axis) const { return axis < 0 ? 1 : program_.mesh.size[axis]; }
  int32_t coordinate(gsel_axis axis) const { return program_.mesh.coordinate(program_.rank, axis); }
  Group along(gsel_axis axis) const { return {axis, size(axis), axis < 0 ? 0 : coordinate(axis)}; }

  void add(gsel_axis axis, gsel_instr_kind kind, int64_t bytes) {
    gsel_comm_count& count = traffic_[{axis, kind}];
    ++count.calls;
    count.bytes_sent += static_cast<uint64_t>(bytes);
  }

  int64_t own_elems(int32_t bucket) const {
    const gsel_range own = own_shard(program_, bucket);
    return own.end - own.begin;
  }

  // The slice of an array that this rank reduces.
  static int64_t slice(const Group& group, int64_t elems) {
    const gsel_range own = shard_range(elems, group.ranks, group.own);
    return own.end - own.begin;
  }

  // A rank gives its array to the others except the slice that it reduces itself, and then the reduced slice: S + (n -
  // 2) * slice.
  static int64_t all_reduced(const Group& group, int64_t elems) {
    return elems + (group.ranks - 2) * slice(group, elems);
  }

  void all_reduce(gsel_axis axis, gsel_instr_kind kind, int64_t bytes, gsel_dtype dtype) {
    const auto elem_bytes = static_cast<int64_t>(dtype_bytes(dtype));
    if (size(axis) > 1) add(axis, kind, all_reduced(along(axis), bytes / elem_bytes) * elem_bytes);
  }

  int64_t value_bytes(int32_t v, int32_t microbatch) const {
    return program_.values[v].bytes(program_.microbatches[microbatch].count);
  }

  // ---- transfers, losses and layers ----

  // A micro-batch without samples sends nothing.
  void message(const InstrRow& row, const gsel_instr& instr) {
    if (program_.microbatches[instr.microbatch].count == 0) return;
    add(GSEL_AXIS_PIPELINE, instr.kind, row.writes_value ? 0 : value_bytes(instr.value, instr.microbatch));
  }

  // The root has the whole micro-batch: others read their shards from it, or it reads theirs.
  void scatter_gather(const InstrRow& row, const gsel_instr& instr) {
    if (size(instr.axis) == 1) return;
    const int32_t whole = program_.microbatches[instr.microbatch].whole;
    const bool is_root = coordinate(instr.axis) == instr.peer;
    const int64_t own = value_bytes(instr.value, instr.microbatch);
    const bool sends = whole >= 0 && is_root == row.writes_value;
    add(instr.axis, instr.kind, !sends ? 0 : is_root ? value_bytes(instr.value, whole) - own : own);
  }

  // Two numbers from the pipeline rank that has the loss to each other pipeline rank.
  void losses(gsel_instr_kind kind) {
    const int32_t n = size(GSEL_AXIS_PIPELINE);
    const auto loss = std::ranges::find_if(program_.layers, &ProgramLayer::is_loss);
    const auto layer = static_cast<int32_t>(loss - program_.layers.begin());
    const bool has_loss = loss != program_.layers.end() && is_here(program_, layer);
    for (int32_t i = 0; i < (n == 1 ? 0 : has_loss ? n - 1 : 1); ++i)
      add(GSEL_AXIS_PIPELINE, kind, has_loss ? 2 * int64_t{sizeof(double)} : 0);
  }

  // A recomputation counts as a forward, an undivided backward as backward_input.
  void layer(const InstrRow& row, const gsel_instr& instr) {
    const ProgramLayer& layer = program_.layers[instr.layer];
    if (layer.redistributes) return redistribute(row, instr);
    phases(row.counted_under, row.task == InstrTask::forward ? layer.forward_phases : layer.backward_phases,
           instr.microbatch);
  }

  void phases(gsel_instr_kind kind, const std::vector<ProgramPhase>& phases, int32_t microbatch) {
    for (const ProgramPhase& phase : phases) {
      const int64_t bytes = phase.bytes + phase.bytes_per_sample * program_.microbatches[microbatch].count;
      if (!phase.ring_shifts)
        all_reduce(phase.axis, kind, bytes, phase.dtype);
      else if (size(phase.axis) > 1)
        add(phase.axis, kind, bytes);
    }
  }

  void redistribute(const InstrRow& row, const gsel_instr& instr) {
    const ProgramLayer& layer = program_.layers[instr.layer];
    const Redistribution redistribution = redistribution_of(program_, layer, instr.kind);
    const gsel_instr_kind kind = row.counted_under;
    const bool forward = row.task == InstrTask::forward;
    const int32_t from = forward ? layer.inputs.front() : layer.outputs.front(),
                  to = forward ? layer.outputs.front() : layer.inputs.front();
    const gsel_axis axis = program_.mesh.sharing_axis();
    const int64_t n = size(axis), bytes = value_bytes(from, instr.microbatch);
    if (n == 1 || !communicates(redistribution) || program_.microbatches[instr.microbatch].count == 0) return;
    if (redistribution == Redistribution::allreduce) return all_reduce(axis, kind, bytes, program_.values[from].dtype);
    if (redistribution == Redistribution::allgather) return add(axis, kind, (n - 1) * bytes);
    // Everything except this rank's own shard of the result.
    const Shard& shard = program_.values[to].shard;
    add(axis, kind, bytes / shard.whole * (shard.whole - shard.size()));
  }

  const Program& program_;
  const int64_t step_;
  Traffic traffic_;
};

}  // namespace

Traffic setup_traffic(const Program& program) {
  return Counter(program, 0).count(program.setup);
}

Traffic traffic_of(const Program& program, const gsel_instr& instr) {
  return Counter(program, 0).count({&instr, 1});
}

Traffic step_traffic(const Program& program, int64_t step) {
  return Counter(program, step).count(program.step);
}

// ---- compressed reductions -----------------------------------------------------------------------------------------

LowRankLayout low_rank_layout(const Program& program, int32_t bucket) {
  const ProgramBucket& b = program.buckets[bucket];
  LowRankLayout layout;
  layout.rank = b.compression_rank;
  int64_t first = 0;
  for (const int32_t p : b.params) {
    const ProgramParam& param = program.params[p];
    const BucketMatrix matrix{p, first, param.rows, param.n_elems / param.rows};
    const int64_t end = first + param.n_elems;
    if (static_cast<__int128>(layout.rank) * (matrix.rows + matrix.cols) < param.n_elems) {
      layout.matrices.push_back(matrix);
      layout.matrix_elems += param.n_elems;
      layout.left_elems += matrix.rows * layout.rank;
      layout.right_elems += matrix.cols * layout.rank;
    } else {
      if (!layout.plain.empty() && layout.plain.back().end == first)
        layout.plain.back().end = end;
      else
        layout.plain.push_back({first, end});
      layout.plain_elems += param.n_elems;
    }
    first = end;
  }
  return layout;
}

std::vector<SentArray> arrays_of_reduce(const Program& program, int32_t bucket, bool compressing) {
  const int64_t elems = bucket_elems(program, bucket);
  const int32_t compression = compressing ? program.buckets[bucket].compression : GSEL_COMPRESS_NONE;
  if (compression == GSEL_COMPRESS_F16) return {{elems, GSEL_F16}};
  if (compression == GSEL_COMPRESS_BF16) return {{elems, GSEL_BF16}};
  if (compression == GSEL_COMPRESS_LOW_RANK) {
    const LowRankLayout layout = low_rank_layout(program, bucket);
    // Left factors are sent with the uncompressed parameters; right factors need the sum of the left ones first.
    if (!layout.matrices.empty())
      return {{layout.left_elems + layout.plain_elems, GSEL_F32}, {layout.right_elems, GSEL_F32}};
  }
  return {{elems, GSEL_F32}};
}

}  // namespace gsel
