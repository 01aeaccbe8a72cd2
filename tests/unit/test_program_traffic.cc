// Bytes by closed form against the communicator: for every kind of instruction, on several numbers of ranks and sizes
// that they do not divide, the call an executor makes is explained and made, and must count what was forecast.
#include <algorithm>

#include "base/shard.h"
#include "base/types.h"
#include "program/shards.h"
#include "program/traffic.h"
#include "support/counts.h"
#include "support/program_maker.h"
#include "support/ranks.h"

namespace {

using namespace gsel;
using namespace gsel::test;

// A call, with what it points to.
struct Call {
  gsel_collective call = GSEL_COLLECTIVE_INIT;
  std::vector<uint64_t> counts;
};

Call reduction(int64_t elems, gsel_dtype dtype) {
  Call c;
  c.call.kind = GSEL_COLLECTIVE_ALLREDUCE;
  c.call.count = static_cast<uint64_t>(elems);
  c.call.dtype = dtype;
  c.call.op = GSEL_SUM;
  return c;
}

std::vector<uint64_t> counts_of(const std::vector<int64_t>& bounds) {
  std::vector<uint64_t> counts;
  for (size_t i = 1; i < bounds.size(); ++i) counts.push_back(static_cast<uint64_t>(bounds[i] - bounds[i - 1]));
  return counts;
}

// What docs/program.md says an instruction is, as calls of gsel/comm.h.
std::vector<Call> calls_of(const Program& p, const gsel_instr& instr) {
  Call c;
  c.call.root = instr.peer;
  c.call.dtype = GSEL_F32;
  c.call.op = GSEL_SUM;
  const Microbatch mb = instr.microbatch < 0 ? Microbatch{} : p.microbatches[instr.microbatch];
  switch (instr.kind) {
    case GSEL_INSTR_LOSS_ALLREDUCE:
      return {reduction(2, GSEL_F64)};
    case GSEL_INSTR_OVERFLOW:
      return {reduction(1, GSEL_F64)};
    case GSEL_INSTR_NORM:
      if (p.buckets[0].axis < 0) return {};
      return {reduction(1, GSEL_F64)};
    case GSEL_FORWARD:
    case GSEL_INSTR_RECOMPUTE:
    case GSEL_BACKWARD: {
      std::vector<Call> calls;
      const ProgramLayer& l = p.layers[instr.layer];
      for (const ProgramPhase& phase : instr.kind == GSEL_BACKWARD ? l.backward_phases : l.forward_phases)
        calls.push_back(reduction(
            (phase.bytes + phase.bytes_per_sample * mb.count) / static_cast<int64_t>(dtype_bytes(phase.dtype)),
            phase.dtype));
      return calls;
    }
    case GSEL_INSTR_ALLREDUCE: {
      std::vector<Call> calls;
      for (const SentArray& array : arrays_of_reduce(p, instr.bucket, true))
        calls.push_back(reduction(array.elems, array.dtype));
      return calls;
    }
    case GSEL_INSTR_REDUCE:
      c = reduction(bucket_elems(p, instr.bucket), GSEL_F32);
      c.call.kind = GSEL_COLLECTIVE_REDUCE;
      c.call.root = instr.peer;
      return {c};
    case GSEL_INSTR_BROADCAST:
      c.call.kind = GSEL_COLLECTIVE_BROADCAST;
      c.call.count = static_cast<uint64_t>(bucket_elems(p, instr.bucket));
      c.call.dtype = p.params[p.buckets[instr.bucket].params[0]].dtype;
      return {c};
    case GSEL_INSTR_REDUCE_SCATTER:
    case GSEL_INSTR_ALLGATHER: {
      const bool whole = p.buckets[instr.bucket].flags & GSEL_BUCKET_WHOLE_PARAMS;
      const bool gather = instr.kind == GSEL_INSTR_ALLGATHER;
      if (gather) c.call.dtype = p.params[p.buckets[instr.bucket].params[0]].dtype;
      c.call.kind = gather  ? whole ? GSEL_COLLECTIVE_ALLGATHERV : GSEL_COLLECTIVE_ALLGATHER
                    : whole ? GSEL_COLLECTIVE_REDUCE_SCATTERV
                            : GSEL_COLLECTIVE_REDUCE_SCATTER;
      const gsel_range own = own_shard(p, instr.bucket);
      c.call.count = static_cast<uint64_t>(own.end - own.begin);
      if (whole) c.counts = counts_of(shard_bounds(p, instr.bucket));
      return {c};
    }
    case GSEL_INSTR_SCATTER:
    case GSEL_INSTR_GATHER: {
      const int64_t sample = p.values[instr.value].sample_bytes / 4;
      std::vector<int64_t> bounds;
      for (int32_t i = 0; i <= p.mesh.size[GSEL_AXIS_DATA]; ++i) {
        const int32_t n = p.mesh.size[GSEL_AXIS_DATA], count = static_cast<int32_t>(p.microbatches[mb.whole].count);
        bounds.push_back(sample * (i < n ? shard_range(count, n, i).begin : count));
      }
      c.counts = counts_of(bounds);
      c.call.kind = instr.kind == GSEL_INSTR_SCATTER ? GSEL_COLLECTIVE_SCATTERV : GSEL_COLLECTIVE_GATHERV;
      return {c};
    }
    default:
      return {};
  }
}

gsel_instr_kind counted_under(gsel_instr_kind kind) {
  if (kind == GSEL_INSTR_RECOMPUTE) return GSEL_FORWARD;
  return kind == GSEL_BACKWARD ? GSEL_BACKWARD_INPUT : kind;
}

// Makes all calls of a list; what each kind counted. Explained bytes must be those that are counted.
void follow(rank_run* run, gsel_comm* comm, const Program& p, const std::vector<gsel_instr>& list, Traffic& counted) {
  std::vector<double> send(4096), recv(4096);
  gsel_error* err = nullptr;
  for (const gsel_instr& instr : list)
    for (Call& c : calls_of(p, instr)) {
      c.call.send = send.data();
      c.call.recv = recv.data();
      if (!c.counts.empty())
        (instr.kind == GSEL_INSTR_SCATTER ? c.call.send_counts : c.call.recv_counts) = c.counts.data();
      const gsel_comm_count before = comm_counts(comm, c.call.kind);
      rank_ok(run, gsel_comm_run(comm, &c.call, &err), err);
      const gsel_comm_count after = comm_counts(comm, c.call.kind);
      gsel_comm_count& sum = counted[{GSEL_AXIS_DATA, counted_under(instr.kind)}];
      sum.calls += after.calls - before.calls;
      sum.bytes_sent += after.bytes_sent - before.bytes_sent;
    }
}

void compare(rank_run* run, const char* what, const Traffic& forecast, const Traffic& counted) {
  rank_check(run, forecast.size() == counted.size());
  for (const auto& [key, count] : counted) {
    const auto found = forecast.find(key);
    const gsel_comm_count told = found == forecast.end() ? gsel_comm_count{} : found->second;
    if (told.calls == count.calls && told.bytes_sent == count.bytes_sent) continue;
    snprintf(run->failure, sizeof run->failure, "%s, %s: %llu bytes in %llu calls forecast, %llu in %llu counted", what,
             find_instr_row(key.second)->word, (unsigned long long)told.bytes_sent, (unsigned long long)told.calls,
             (unsigned long long)count.bytes_sent, (unsigned long long)count.calls);
    return;
  }
}

void follow_programs(rank_run* run) {
  const auto& variants = *static_cast<const std::vector<std::vector<Program>>*>(run->user);
  gsel_comm* comm = nullptr;
  gsel_error* err = nullptr;
  rank_ok(run, rank_join(run, &comm, &err), err);
  for (const std::vector<Program>& programs : variants) {
    if (run->failure[0]) break;
    const Program& p = programs[static_cast<size_t>(run->rank)];
    Traffic setup, step;
    follow(run, comm, p, p.setup, setup);
    follow(run, comm, p, p.step, step);
    if (!run->failure[0]) compare(run, "setup", setup_traffic(p), setup);
    if (!run->failure[0]) compare(run, "step", step_traffic(p), step);
  }
  gsel_comm_free(comm);
}

std::vector<std::vector<Program>> variants_on(int32_t ranks) {
  std::vector<std::vector<Program>> variants;
  for (Strategy strategy : kStrategies) {
    Wanted wanted{.strategy = strategy, .ranks = ranks};
    wanted.recompute = wanted.clip = wanted.overflow = wanted.phases = true;
    variants.push_back(make_programs(wanted));
    for (Program& p : variants.emplace_back(make_programs(wanted))) {
      for (ProgramBucket& b : p.buckets) b.flags |= GSEL_BUCKET_WHOLE_PARAMS;
      for (ProgramParam& param : p.params) param.dtype = GSEL_BF16;
    }
  }
  for (int32_t compression : {GSEL_COMPRESS_F16, GSEL_COMPRESS_BF16, GSEL_COMPRESS_LOW_RANK})
    for (Program& p : variants.emplace_back(make_programs({.strategy = Strategy::ddp, .ranks = ranks})))
      for (ProgramBucket& b : p.buckets) {
        p.params[TABLE] = {"table", 60, GSEL_F32, true, 6};
        b.compression = compression;
        b.compression_rank = 1;
      }
  return variants;
}

void the_communicator_counts_what_is_forecast(void**) {
  for (int32_t ranks : {1, 2, 3, 4, 7}) {
    std::vector<std::vector<Program>> variants = variants_on(ranks);
    if (ranks == 1) {
      for (const std::vector<Program>& programs : variants)
        assert_true(step_traffic(programs[0]).empty() && setup_traffic(programs[0]).empty());
      continue;
    }
    as_threads(ranks, follow_programs, &variants);
  }
}

void the_step_number_decides_whether_a_reduction_is_compressed(void**) {
  Program p = make_programs({.strategy = Strategy::ddp, .ranks = 2, .microbatches = 1})[0];
  for (ProgramBucket& b : p.buckets) {
    b.compression = GSEL_COMPRESS_F16;
    b.compression_start = 3;
  }
  const std::pair<gsel_axis, gsel_instr_kind> reduce{GSEL_AXIS_DATA, GSEL_INSTR_ALLREDUCE};
  assert_int_equal(step_traffic(p, 2).at(reduce).bytes_sent, 29 * 4);
  assert_int_equal(step_traffic(p, 3).at(reduce).bytes_sent, 29 * 2);
  assert_int_equal(step_traffic(p).at(reduce).bytes_sent, 29 * 2);
}

// Of a model whose sizes are divided evenly, in the words of the papers.
void closed_forms_of_the_papers(void**) {
  constexpr uint64_t n = 4, elems = 32, bytes = elems * 4;
  for (Strategy strategy : kStrategies) {
    std::vector<Program> programs = make_programs({.strategy = strategy, .ranks = n, .microbatches = 3, .batch = 24});
    for (Program& p : programs) {
      p.params[TABLE].n_elems = 16;
      p.params[W1].n_elems = 4;
      p.params[B1].n_elems = 4;
      p.params[W2].n_elems = 8;
      const Traffic t = step_traffic(p);
      auto sent = [&](gsel_instr_kind kind) {
        const auto found = t.find({GSEL_AXIS_DATA, kind});
        return found == t.end() ? 0 : found->second.bytes_sent;
      };
      const uint64_t ring = (n - 1) * bytes / n;
      const bool master = p.rank == 0;
      switch (strategy) {
        case Strategy::ddp:  // 2 (N-1)/N, whatever the number of micro-batches
          assert_int_equal(sent(GSEL_INSTR_ALLREDUCE), 2 * ring);
          break;
        case Strategy::zero1:
          assert_int_equal(sent(GSEL_INSTR_REDUCE_SCATTER), ring);
          assert_int_equal(sent(GSEL_INSTR_ALLGATHER), ring);
          break;
        case Strategy::zero2:  // m times the gradients, once the parameters
          assert_int_equal(sent(GSEL_INSTR_REDUCE_SCATTER), 3 * ring);
          assert_int_equal(sent(GSEL_INSTR_ALLGATHER), ring);
          break;
        case Strategy::zero3:  // the table is read by three callbacks, w1 by two; w2 stays whole
          assert_int_equal(sent(GSEL_INSTR_REDUCE_SCATTER), 3 * ring);
          assert_int_equal(sent(GSEL_INSTR_ALLGATHER), (3 * (3 * 16 + 2 * 8) + 8) * 4 * (n - 1) / n);
          break;
        case Strategy::dp:  // (n-1) parameters and (n-1)/n of inputs and of the gradient of what the loss reads
          assert_int_equal(sent(GSEL_INSTR_BROADCAST), master ? (n - 1) * bytes : 0);
          assert_int_equal(sent(GSEL_INSTR_SCATTER), master ? (n - 1) * 24 * (8 + 24) / n : 0);
          assert_int_equal(sent(GSEL_INSTR_GATHER), master ? 0 : 24 * 24 / n);
          // The communicator has the root fold its slice, too.
          assert_int_equal(sent(GSEL_INSTR_REDUCE), master ? bytes - bytes / n : bytes);
          break;
      }
    }
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(the_communicator_counts_what_is_forecast),
      cmocka_unit_test(the_step_number_decides_whether_a_reduction_is_compressed),
      cmocka_unit_test(closed_forms_of_the_papers),
  };
  return cmocka_run_group_tests_name("program traffic", tests, nullptr, nullptr);
}
