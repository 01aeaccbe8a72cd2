// program/verify/outline.cc: see checks.h.
#include <algorithm>

#include "base/shard.h"
#include "base/text.h"
#include "base/types.h"
#include "program/stages.h"
#include "program/verify/checks.h"

namespace gsel {
namespace {

[[noreturn]] void refuse(const Program& program, const std::string& why) {
  throw Error(GSEL_ERR_PROGRAM, fmt::format("rank {}: {}", program.rank, why)).about_rank(program.rank);
}

// Ranks of one coordinate on the sharing axis have equal models; check_sharing_outlines compares different coordinates.
void check_same_model(const Program& first, const Program& p) {
  if (p.params != first.params || p.values != first.values || p.layers != first.layers)
    fail(GSEL_ERR_PROGRAM, "the programs of ranks {} and {} are of different models", first.rank, p.rank);
}

void check_homes(const Program& program) {
  std::vector<int32_t> homes(program.params.size());
  for (const ProgramBucket& bucket : program.buckets)
    for (int32_t p : bucket.params) ++homes[p];
  const std::vector<std::vector<int32_t>> all = all_holders(program);
  const int32_t pipeline_rank = program.mesh.coordinate(program.rank, GSEL_AXIS_PIPELINE);
  for (size_t p = 0; p < homes.size(); ++p) {
    const bool trainable = program.params[p].trainable, is_here = std::ranges::count(all[p], pipeline_rank) > 0;
    if (homes[p] == (trainable && is_here ? 1 : 0)) continue;
    refuse(program, fmt::format("parameter \"{}\" is in {} buckets; {}", program.params[p].name, homes[p],
                                !trainable ? "it is frozen and belongs in none"
                                : is_here  ? "expected one"
                                           : "no layer of this rank's stages uses it, and it belongs in none"));
  }
}

// Ranks that differ on other axes than data compute with the same samples.
void check_same_microbatches(const Program& first, const Program& p, gsel_axis axis) {
  if (p.microbatches != first.microbatches)
    refuse(p, fmt::format("its micro-batches differ from those of rank {}, which is on the same {} axis", first.rank,
                          axis_name(axis)));
}

// Ranks of the data axis have equally many micro-batches; the shards of a whole one divide it evenly.
void check_whole_microbatches(const Job& job, int32_t coordinate) {
  const std::vector<Microbatch>&mine = job.microbatches[coordinate], &first = job.microbatches.front();
  const auto ranks = static_cast<int32_t>(job.microbatches.size());
  const int32_t rank = coordinate * job.mesh().stride(GSEL_AXIS_DATA);
  auto refuse = [rank](const std::string& why) {
    throw Error(GSEL_ERR_PROGRAM, fmt::format("rank {}: {}", rank, why)).about_rank(rank);
  };
  if (mine.size() != first.size())
    refuse(
        fmt::format("it has {} and rank 0 has {}; all ranks of the data axis have equally many, of no "
                    "samples if need be",
                    with_noun(mine.size(), "micro-batch"), first.size()));
  for (size_t m = 0; m < mine.size(); ++m) {
    if (mine[m].whole != first[m].whole)
      refuse(fmt::format("micro-batch {} is a shard of another one than on rank 0", m));
    if (mine[m].whole < 0) continue;
    const Microbatch& whole = mine[mine[m].whole];
    if (whole != first[mine[m].whole])
      refuse(fmt::format("micro-batch {} is the whole of {} and is another one on rank 0", mine[m].whole, m));
    const gsel_range shard = shard_range(whole.count, ranks, coordinate);
    if (mine[m].first != whole.first + shard.begin || mine[m].count != shard.end - shard.begin)
      refuse(fmt::format("micro-batch {} is {} from {}; shard {} of {} of micro-batch {} is {} from {}", m,
                         with_noun(mine[m].count, "sample"), mine[m].first, coordinate, ranks, mine[m].whole,
                         with_noun(shard.end - shard.begin, "sample"), whole.first + shard.begin));
  }
}

void check_own_outline(const Program& program) {
  try {
    check_stages(program);
    const std::vector<std::vector<int32_t>> holders = all_holders(program);
    for (size_t b = 0; b < program.buckets.size(); ++b) check_bucket(program, static_cast<int32_t>(b), holders);
    for (size_t m = 0; m < program.microbatches.size(); ++m) check_microbatch(program, static_cast<int32_t>(m));
  } catch (const Error& e) {
    refuse(program, e.message());
  }
  check_homes(program);
  for (size_t b = 0; b < program.buckets.size(); ++b) {
    const ProgramBucket& bucket = program.buckets[b];
    if (bucket.divides_state() && bucket.axis != GSEL_AXIS_DATA)
      refuse(program, fmt::format("bucket {} is kept along the {} axis; gradients are summed over the data axis alone",
                                  b, axis_name(bucket.axis)));
  }
  for (const ProgramLayer& l : program.layers)
    for (const auto* phases : {&l.forward_phases, &l.backward_phases})
      for (const ProgramPhase& phase : *phases)
        if (phase.axis == GSEL_AXIS_DATA && phase.bytes_per_sample)
          refuse(program, fmt::format("layer \"{}\" has a phase over the data axis whose size depends on the number of "
                                      "samples, which differs along it",
                                      l.name));
}

}  // namespace

void check_bucket(const Program& program, int32_t bucket, const std::vector<std::vector<int32_t>>& holders) {
  const ProgramBucket& b = program.buckets[bucket];
  auto refuse = [&](const std::string& why) { fail(GSEL_ERR_PROGRAM, "bucket {}: {}", bucket, why); };
  constexpr uint32_t known = GSEL_BUCKET_SHARD_STATE | GSEL_BUCKET_SHARD_GRADIENT | GSEL_BUCKET_SHARD_PARAM |
                             GSEL_BUCKET_OFFLOAD_STATE | GSEL_BUCKET_OFFLOAD_PARAM | GSEL_BUCKET_WHOLE_PARAMS;
  if (b.flags & ~known) refuse(fmt::format("it has unknown flags {:#x}", b.flags & ~known));
  if (b.params.empty()) refuse("it has no parameters");
  for (int32_t p : b.params)
    if (program.params[p].dtype != program.params[b.params.front()].dtype)
      refuse(fmt::format("its parameters \"{}\" and \"{}\" are kept in two dtypes; a bucket has one",
                         program.params[b.params.front()].name, program.params[p].name));
  for (int32_t p : b.params)
    if (program.params[p].partial_gradient != program.params[b.params.front()].partial_gradient)
      refuse(fmt::format(
          "its parameters \"{}\" and \"{}\" have gradients with two placements, of which one is partial on the {} "
          "axis; those of a bucket are summed alike",
          program.params[b.params.front()].name, program.params[p].name, axis_name(program.mesh.sharing_axis())));
  for (int32_t p : b.params)
    if (holders[p] != holders[b.params.front()])
      refuse(
          fmt::format("its parameters \"{}\" and \"{}\" are held by pipeline ranks {} and {}; those of a "
                      "bucket are held by the same",
                      program.params[b.params.front()].name, program.params[p].name,
                      fmt::join(holders[b.params.front()], ", "), fmt::join(holders[p], ", ")));
  if (b.shards_gradient() && !b.shards_state()) refuse("gradients in shards need state in shards");
  if (b.shards_param() && !b.shards_gradient()) refuse("parameters in shards need gradients in shards");
  if (b.flags & GSEL_BUCKET_OFFLOAD_PARAM && !b.shards_param())
    refuse("whole parameters cannot live in offload memory; parameters in shards can");
  if (b.axis < -1 || b.axis >= kAxes) refuse(fmt::format("axis {} does not exist", b.axis));
  if (b.axis < 0 && b.divides_state()) refuse("shards and an owner need an axis");
  if (b.owner >= 0 && b.shards_state()) refuse("it has an owner and shards; use one of them");
  if (b.owner < -1 || (b.owner >= 0 && b.owner >= program.mesh.size[b.axis]))
    refuse(fmt::format("owner {} is no coordinate on an axis of {}", b.owner, program.mesh.size[b.axis]));
  if (b.compression == GSEL_COMPRESS_NONE) return;
  if (b.compression < 0 || b.compression > GSEL_COMPRESS_LOW_RANK)
    refuse(fmt::format("compression {} does not exist", b.compression));
  if (b.divides_state()) refuse("only the allreduce of a bucket without shards and owner is compressed");
  if (b.compression == GSEL_COMPRESS_LOW_RANK && b.compression_rank < 1)
    refuse(fmt::format("low-rank compression to {} columns; expected 1 or more", b.compression_rank));
}

void check_microbatch(const Program& program, int32_t microbatch) {
  const Microbatch& m = program.microbatches[microbatch];
  if (m.first < 0 || m.count < 0)
    fail(GSEL_ERR_PROGRAM, "micro-batch {} has {} from {}", microbatch, with_noun(m.count, "sample"), m.first);
  if (m.whole < 0) return;
  const auto n = static_cast<int64_t>(program.microbatches.size());
  if (m.whole >= n || m.whole == microbatch)
    fail(GSEL_ERR_PROGRAM, "micro-batch {} is a shard of {}; use another of 0 to {}", microbatch, m.whole, n - 1);
  if (program.microbatches[m.whole].whole >= 0)
    fail(GSEL_ERR_PROGRAM, "micro-batch {} is a shard of {}, itself a shard", microbatch, m.whole);
}

void check_outlines(const Job& job) {
  const Program& first = *job.programs.front();
  for (const Program* program : job.programs) {
    const Program& p = *program;
    if (p.mesh != first.mesh)
      fail(GSEL_ERR_PROGRAM, "the programs of ranks {} and {} are of different meshes", first.rank, p.rank);
    if (p.rank_of_stage != first.rank_of_stage)
      fail(GSEL_ERR_PROGRAM, "the programs of ranks {} and {} have their stages on different pipeline ranks",
           first.rank, p.rank);
    if (p.transfers != first.transfers)
      fail(GSEL_ERR_PROGRAM, "the programs of ranks {} and {} allow {} and {} transfers; all ranks allow as many",
           first.rank, p.rank, first.transfers, p.transfers);
    check_same_model(*job.sharing[static_cast<size_t>(p.mesh.sharing_index(p.rank))], p);
    check_own_outline(p);
  }
  check_sharing_outlines(job.sharing);
  for (const Program* p : job.sharing) check_same_microbatches(*job.sharing.front(), *p, p->mesh.sharing_axis());
  for (const Program* p : job.programs)
    for (gsel_axis axis : {p->mesh.sharing_axis(), gsel_axis{GSEL_AXIS_PIPELINE}})
      if (const Program* other = job.find(p->mesh.group(p->rank, axis).front()))
        check_same_microbatches(*other, *p, axis);
  for (int32_t i = 0; i < static_cast<int32_t>(job.microbatches.size()); ++i) check_whole_microbatches(job, i);
}

}  // namespace gsel
