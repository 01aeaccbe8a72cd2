// train/state/layout.cc: see layout.h.
#include "train/state/layout.h"

#include <algorithm>

#include "base/types.h"
#include "program/optimistic.h"
#include "program/shards.h"
#include "program/stages.h"
#include "train/optimize/compress.h"
#include "train/state/arena_plan.h"
#include "train/state/offloaded_steps.h"
#include "train/state/step_copy.h"

namespace gsel {
namespace {

constexpr uint64_t kGradientBytes = sizeof(float);
constexpr uint64_t kMasterBytes = sizeof(float);

uint64_t bytes_of(int64_t elems, uint64_t bytes) {
  return static_cast<uint64_t>(elems) * bytes;
}

int64_t elems_of(const Program& program, const std::vector<int32_t>& params) {
  int64_t n = 0;
  for (int32_t p : params) n += program.params[p].n_elems;
  return n;
}

// The runs of consecutive parameters in a range of the bucket.
std::vector<ParamRun> runs_in(const Program& program, const std::vector<int32_t>& params, gsel_range own) {
  std::vector<ParamRun> runs;
  int64_t begin = 0;
  for (int32_t p : params) {
    const int64_t end = begin + program.params[p].n_elems;
    const int64_t from = std::max(begin, own.begin), to = std::min(end, own.end);
    if (from < to) runs.push_back({p, from - own.begin, to - from, from - begin});
    begin = end;
  }
  return runs;
}

BucketLayout frozen_layout(const Program& program, const ProgramBucket& bucket) {
  BucketLayout layout;
  layout.dtype = program.params[bucket.params.front()].dtype;
  layout.elems = layout.padded = elems_of(program, bucket.params);
  layout.steps = layout.whole_gradient = false;
  layout.param_bytes = bytes_of(layout.elems, dtype_bytes(layout.dtype));
  return layout;
}

void add_state(const Optimizer& optimizer, BucketLayout& layout) {
  for (int i = 0; i < optimizer.n_states(); ++i) {
    layout.each_state_bytes[i] = optimizer.state_bytes(i, layout.own_elems(), static_cast<int64_t>(layout.runs.size()));
    layout.state_bytes += layout.each_state_bytes[i];
  }
  if (layout.dtype != GSEL_F32) layout.master_bytes = bytes_of(layout.own_elems(), kMasterBytes);
}

BucketLayout layout_of(const Program& program, const Optimizer& optimizer, int32_t b) {
  const ProgramBucket& bucket = program.buckets[b];
  BucketLayout layout;
  layout.dtype = program.params[bucket.params.front()].dtype;
  layout.elems = bucket_elems(program, b);
  layout.padded = padded_elems(program, b);
  layout.steps = steps_here(program, b);
  if (layout.steps) {
    layout.own = own_shard(program, b);
    layout.runs = runs_in(program, bucket.params, layout.own);
  }
  layout.whole_params = layout.steps && !bucket.shards_param();
  layout.whole_gradient = layout.steps && !bucket.shards_gradient();
  layout.offload_state = bucket.flags & GSEL_BUCKET_OFFLOAD_STATE;
  layout.offload_params = bucket.flags & GSEL_BUCKET_OFFLOAD_PARAM && bucket.shards_param();

  const uint64_t whole_params = bytes_of(layout.padded, dtype_bytes(layout.dtype));
  const uint64_t whole_gradient = bytes_of(layout.padded, kGradientBytes);
  layout.param_bytes = layout.whole_params ? whole_params : bytes_of(layout.own_elems(), dtype_bytes(layout.dtype));
  layout.gradient_bytes = layout.whole_gradient ? whole_gradient : bytes_of(layout.own_elems(), kGradientBytes);
  layout.param_window_bytes = layout.whole_params ? 0 : whole_params;
  layout.gradient_window_bytes = layout.whole_gradient ? 0 : whole_gradient;
  if (layout.steps) add_state(optimizer, layout);
  return layout;
}

}  // namespace

std::vector<ProgramBucket> stored_buckets(const Program& program) {
  std::vector<ProgramBucket> buckets = program.buckets;
  const int32_t pipeline_rank = program.mesh.coordinate(program.rank, GSEL_AXIS_PIPELINE);
  const std::vector<std::vector<int32_t>> holders = all_holders(program);
  for (gsel_dtype dtype : {GSEL_F32, GSEL_BF16, GSEL_F16}) {
    ProgramBucket frozen;
    for (size_t p = 0; p < program.params.size(); ++p)
      if (!program.params[p].trainable && program.params[p].dtype == dtype &&
          std::ranges::count(holders[p], pipeline_rank))
        frozen.params.push_back(static_cast<int32_t>(p));
    if (!frozen.params.empty()) buckets.push_back(std::move(frozen));
  }
  return buckets;
}

void BucketLayout::add_to(MemoryPartBytes& parts) const {
  auto add = [&](MemoryPart part, uint64_t bytes) { parts[static_cast<size_t>(part)] += bytes; };
  add(offload_params ? MemoryPart::offload_params : MemoryPart::params, param_bytes);
  add(MemoryPart::gradients, gradient_bytes);
  add(offload_state ? MemoryPart::offload_state : MemoryPart::state, state_bytes);
  add(offload_state ? MemoryPart::offload_state : MemoryPart::master, master_bytes);
  add(offload_state ? MemoryPart::offload_state : MemoryPart::step_copy, copy_bytes);
}

std::vector<BucketLayout> layouts_of(const Program& program, const Optimizer& optimizer) {
  const std::vector<ProgramBucket> buckets = stored_buckets(program);
  std::vector<BucketLayout> layouts;
  for (size_t b = 0; b < buckets.size(); ++b)
    layouts.push_back(b < program.buckets.size() ? layout_of(program, optimizer, static_cast<int32_t>(b))
                                                 : frozen_layout(program, buckets[b]));
  if (!has_optimistic_steps(program)) return layouts;
  for (BucketLayout& layout : layouts) {
    layout.copies_gradient = optimizer.poisons_gradients();
    layout.copy_bytes = step_copy_bytes(layout, layout.copies_gradient);
  }
  return layouts;
}

uint64_t staging_bytes(const Program& program, const Optimizer& optimizer) {
  size_t most = 0;
  if (optimizer.needs_param_norms())
    for (const ProgramBucket& bucket : program.buckets) most = std::max(most, bucket.params.size());
  return (std::max<uint64_t>(8, 2 * most) + (has_optimistic_steps(program) ? kOptimisticNumbers : 0)) * sizeof(double);
}

uint64_t offload_buffers(const DeviceContext& device, const Config& config) {
  return device.has_streams() && config.train.graph == "off" ? static_cast<uint64_t>(config.train.offload_buffer_bytes)
                                                             : 0;
}

MemoryPartBytes forecast_memory(const Model& model, const Program& program, const Optimizer& optimizer,
                                uint64_t buffers) {
  MemoryPartBytes parts{};
  const std::vector<BucketLayout> layouts = layouts_of(program, optimizer);
  for (const BucketLayout& layout : layouts) layout.add_to(parts);
  for (size_t b = 0; b < program.buckets.size(); ++b) {
    if (program.buckets[b].compression == GSEL_COMPRESS_NONE) continue;
    const MemoryPartBytes compressor = Compressor::bytes(program, static_cast<int32_t>(b));
    for (size_t i = 0; i < kMemoryParts; ++i) parts[i] += compressor[i];
  }
  parts[static_cast<size_t>(MemoryPart::windows)] += ArenaPlan(model, program, layouts).bytes();
  parts[static_cast<size_t>(MemoryPart::staging)] +=
      staging_bytes(program, optimizer) +
      OffloadPipe::kBuffers * offload_buffer_bytes(program, optimizer, layouts, buffers);
  return parts;
}

}  // namespace gsel
