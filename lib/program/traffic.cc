// program/traffic.cc: see traffic.h. n is the number of ranks on the axis; bytes are those that other ranks read from
// this rank, as in gsel_comm_counts.
#include "program/traffic.h"

#include <algorithm>

#include "base/dtype.h"
#include "base/shard.h"
#include "program/compression.h"
#include "program/redistribution.h"
#include "program/shards.h"
#include "program/stages.h"

namespace gsel {
namespace {

class Counter {
 public:
  Counter(const Program& program, int64_t step) : program_(program), step_(step) {}

  Traffic count(const std::vector<gsel_instr>& instrs) {
    for (const gsel_instr& instr : instrs) count(instr);
    return std::move(traffic_);
  }

 private:
  void count(const gsel_instr& instr) {
    const InstrForm* form = form_of(instr.kind);
    if (!form) return;
    switch (form->work) {
      case InstrWork::forward:
      case InstrWork::backward:
        return layer(*form, instr);
      case InstrWork::message:
        return message(instr);
      case InstrWork::sum_stepped:
        return form->meets == InstrPeers::tied ? allreduce_tied(instr.bucket) : allreduce_partial(instr);
      case InstrWork::numbers:
        return numbers(instr);
      case InstrWork::parts:
        if (size(instr.axis) > 1) add(instr.axis, instr.kind, part_bytes(instr));
        return;
      case InstrWork::params:
      case InstrWork::gradients:
        if (size(instr.axis) == 1) return;
        return instr.kind == GSEL_INSTR_ALLREDUCE ? reduce(instr) : add(instr.axis, instr.kind, bucket_bytes(instr));
      default:
        return;
    }
  }

  // ---- common to several kinds ----

  int32_t size(gsel_axis axis) const { return axis < 0 ? 1 : program_.mesh.size[axis]; }
  int32_t coordinate(gsel_axis axis) const { return program_.mesh.coordinate(program_.rank, axis); }

  void add(gsel_axis axis, gsel_instr_kind kind, int64_t bytes) {
    gsel_comm_count& count = traffic_[{axis, kind}];
    ++count.calls;
    count.bytes_sent += static_cast<uint64_t>(bytes);
  }

  // The slice of an array that this rank reduces.
  int64_t slice(gsel_axis axis, int64_t elems) const {
    const gsel_range own = shard_range(elems, size(axis), coordinate(axis));
    return own.end - own.begin;
  }

  // A rank gives its array to the others except the slice that it reduces itself, and then the reduced slice: S + (n -
  // 2) * slice.
  void all_reduce(gsel_axis axis, gsel_instr_kind kind, int64_t elems, int64_t elem_bytes) {
    const int32_t n = size(axis);
    if (n > 1) add(axis, kind, (elems + (n - 2) * slice(axis, elems)) * elem_bytes);
  }

  // ---- kinds ----

  // A recomputation counts as a forward, an undivided backward as backward_input.
  void layer(const InstrForm& form, const gsel_instr& instr) {
    if (form.meets != InstrPeers::layer) return;
    const ProgramLayer& layer = program_.layers[instr.layer];
    const bool forward = form.work == InstrWork::forward;
    const gsel_instr_kind kind = forward ? GSEL_FORWARD : GSEL_BACKWARD_INPUT;
    if (layer.redistributes) return redistribute(kind, instr);
    phases(kind, forward ? layer.forward_phases : layer.backward_phases, instr.microbatch);
  }

  void numbers(const gsel_instr& instr) {
    if (instr.kind == GSEL_INSTR_NORM) return norm();
    if (instr.kind == GSEL_INSTR_OVERFLOW) return all_reduce(instr.axis, instr.kind, 1, sizeof(double));
    instr.axis == GSEL_AXIS_PIPELINE ? losses() : all_reduce(instr.axis, instr.kind, 2, sizeof(double));
  }

  // Two numbers from the pipeline rank that has the loss to each other pipeline rank.
  void losses() {
    const int32_t n = size(GSEL_AXIS_PIPELINE);
    const auto loss = std::ranges::find_if(program_.layers, &ProgramLayer::is_loss);
    const auto layer = static_cast<int32_t>(loss - program_.layers.begin());
    const bool has_loss = loss != program_.layers.end() && is_here(program_, layer);
    for (int32_t i = 0; i < (n == 1 ? 0 : has_loss ? n - 1 : 1); ++i)
      add(GSEL_AXIS_PIPELINE, GSEL_INSTR_LOSS_ALLREDUCE, has_loss ? 2 * int64_t{sizeof(double)} : 0);
  }

  // A micro-batch without samples sends nothing.
  void message(const gsel_instr& instr) {
    if (program_.microbatches[instr.microbatch].count == 0) return;
    add(GSEL_AXIS_PIPELINE, instr.kind, instr.kind == GSEL_INSTR_SEND ? value_bytes(instr.value, instr.microbatch) : 0);
  }

  // An all-reduce of what this rank steps of the bucket, among the ranks that hold its parameters.
  void allreduce_tied(int32_t bucket) {
    const std::vector<int32_t> ranks = tied_ranks(program_, bucket);
    const auto n = std::ssize(ranks), mine = std::ranges::find(ranks, program_.rank) - ranks.begin();
    if (n < 2 || mine == n) return;
    const gsel_range own = own_shard(program_, bucket);
    const gsel_range folded = shard_range(own.end - own.begin, n, mine);
    add(GSEL_AXIS_PIPELINE, GSEL_INSTR_ALLREDUCE_TIED,
        (own.end - own.begin + (n - 2) * (folded.end - folded.begin)) * int64_t{sizeof(float)});
  }

  void phases(gsel_instr_kind kind, const std::vector<ProgramPhase>& phases, int32_t microbatch) {
    for (const ProgramPhase& phase : phases) {
      const auto elem_bytes = static_cast<int64_t>(dtype_bytes(phase.dtype));
      const int64_t bytes = phase.bytes + phase.bytes_per_sample * program_.microbatches[microbatch].count;
      if (!phase.ring_shifts)
        all_reduce(phase.axis, kind, bytes / elem_bytes, elem_bytes);
      else if (size(phase.axis) > 1)
        add(phase.axis, kind, bytes);
    }
  }

  void redistribute(gsel_instr_kind kind, const gsel_instr& instr) {
    const ProgramLayer& layer = program_.layers[instr.layer];
    const Redistribution redistribution = redistribution_of(program_, layer, kind);
    const bool forward = kind == GSEL_FORWARD;
    const int32_t from = forward ? layer.inputs.front() : layer.outputs.front(),
                  to = forward ? layer.outputs.front() : layer.inputs.front();
    const gsel_axis axis = program_.mesh.sharing_axis();
    const int64_t n = size(axis), bytes = value_bytes(from, instr.microbatch);
    if (n == 1 || !communicates(redistribution) || program_.microbatches[instr.microbatch].count == 0) return;
    if (redistribution == Redistribution::allreduce) {
      const auto elem_bytes = static_cast<int64_t>(dtype_bytes(program_.values[from].dtype));
      return all_reduce(axis, kind, bytes / elem_bytes, elem_bytes);
    }
    if (redistribution == Redistribution::allgather) return add(axis, kind, (n - 1) * bytes);
    // Everything except this rank's own shard of the result.
    const Shard& shard = program_.values[to].shard;
    add(axis, kind, bytes / shard.whole * (shard.whole - shard.size()));
  }

  // An all-reduce of what this rank steps of the bucket.
  void allreduce_partial(const gsel_instr& instr) {
    const gsel_range own = own_shard(program_, instr.bucket);
    all_reduce(instr.axis, instr.kind, own.end - own.begin, sizeof(float));
  }

  int64_t value_bytes(int32_t v, int32_t microbatch) const {
    const ProgramValue& value = program_.values[v];
    return value.sample_bytes * (value.is_scalar ? 1 : program_.microbatches[microbatch].count);
  }

  // One number for each axis that norm_sums_over.
  void norm() {
    for (gsel_axis axis = 0; axis < kAxes; ++axis)
      if (norm_sums_over(program_, axis)) all_reduce(axis, GSEL_INSTR_NORM, 1, sizeof(double));
  }

  // Each array of a compressed bucket is a call.
  void reduce(const gsel_instr& instr) {
    const bool compressing = step_ >= program_.buckets[instr.bucket].compression_start;
    for (const SentArray& array : arrays_of_reduce(program_, instr.bucket, compressing))
      all_reduce(instr.axis, instr.kind, array.elems, static_cast<int64_t>(dtype_bytes(array.dtype)));
  }

  int64_t bucket_bytes(const gsel_instr& instr) const {
    const int64_t n = size(instr.axis), elems = bucket_elems(program_, instr.bucket);
    const auto param_bytes =
        static_cast<int64_t>(dtype_bytes(program_.params[program_.buckets[instr.bucket].params.front()].dtype));
    const gsel_range own = own_shard(program_, instr.bucket);
    const bool is_root = coordinate(instr.axis) == instr.peer;
    switch (instr.kind) {
      case GSEL_INSTR_BROADCAST:
        return is_root ? (n - 1) * elems * param_bytes : 0;
      case GSEL_INSTR_ALLGATHER:
        return (n - 1) * (own.end - own.begin) * param_bytes;
      case GSEL_INSTR_REDUCE_SCATTER:
        return (padded_elems(program_, instr.bucket) - (own.end - own.begin)) * int64_t{sizeof(float)};
      case GSEL_INSTR_REDUCE:
        // All but the slice reduced here, which goes to the root after its reduction.
        return (elems - (is_root ? slice(instr.axis, elems) : 0)) * int64_t{sizeof(float)};
      default:
        return 0;
    }
  }

  // SCATTER: other ranks read their parts from the root. GATHER: the root reads the others' parts.
  int64_t part_bytes(const gsel_instr& instr) const {
    const Microbatch& part = program_.microbatches[instr.microbatch];
    const bool is_root = coordinate(instr.axis) == instr.peer;
    if (is_root != (instr.kind == GSEL_INSTR_SCATTER) || part.whole < 0) return 0;
    return value_bytes(instr.value, is_root ? part.whole : instr.microbatch) -
           (is_root ? value_bytes(instr.value, instr.microbatch) : 0);
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
  return Counter(program, 0).count(std::vector<gsel_instr>{instr});
}

Traffic step_traffic(const Program& program, int64_t step) {
  return Counter(program, step).count(program.step);
}

}  // namespace gsel
