// train/state/layout.h: the sizes of everything that a rank keeps, computed from the program alone. Storage allocates
// these sizes and the forecast sums them, so the two cannot disagree.
#pragma once

#include <array>
#include <vector>

#include "model/model.h"
#include "program/program.h"
#include "train/memory/ledger.h"
#include "train/optimize/optimizer.h"

namespace gsel {

// The buckets that hold this rank's parameters: the program's, then one per dtype of frozen parameters.
std::vector<ProgramBucket> stored_buckets(const Program& program);

struct BucketLayout {
  gsel_dtype dtype = GSEL_F32;  // stored dtype of its parameters
  int64_t elems = 0;            // of its parameters
  int64_t padded = 0;           // elements up to the end of the last shard
  gsel_range own{};             // elements whose state this rank keeps and steps; all if not sharded
  bool steps = true;            // false for frozen parameters, or if another rank owns the bucket
  bool whole_params = true;     // else this rank keeps a shard (SHARD_PARAM), or nothing (another rank's)
  bool whole_gradient = true;   // the same for gradients
  std::vector<ParamRun> runs;   // the elements of parameters that lie in `own`
  bool offload_state = false, offload_params = false;  // in offload memory
  // Bytes that this rank keeps between steps.
  uint64_t param_bytes = 0, gradient_bytes = 0, state_bytes = 0, master_bytes = 0;
  std::array<uint64_t, kMostStates> each_state_bytes{};  // sum: state_bytes
  // Bytes of windows for gathered parameters and for the whole gradient of a sharded bucket. 0: never opened.
  uint64_t param_window_bytes = 0, gradient_window_bytes = 0;
  // Bytes of the copy for optimistic steps, kept until validation; with gradients if the optimizer may overwrite them.
  uint64_t copy_bytes = 0;
  bool copies_gradient = false;

  int64_t own_elems() const { return own.end - own.begin; }
  void add_to(MemoryPartBytes& parts) const;
};
// One for each of stored_buckets.
std::vector<BucketLayout> layouts_of(const Program& program, const Optimizer& optimizer);

// Bytes of the numbers that ranks exchange in a step: loss, norm, overflow, and norms that an optimizer sums over
// owners. They are one allocation of MemoryPart::staging; its last kOptimisticNumbers are under way across steps.
constexpr uint64_t kOptimisticNumbers = 2;
uint64_t staging_bytes(const Program& program, const Optimizer& optimizer);

// Upper bound in bytes of the buffers through which offloaded buckets are stepped. 0 on the host, and with graphs,
// which record one stream only.
uint64_t offload_buffers(const DeviceContext& device, const Config& config);

// Bytes of every part on this rank: what it keeps, and the arena (train/state/arena_plan.h). buffers: offload_buffers
// of its device.
MemoryPartBytes forecast_memory(const Model& model, const Program& program, const Optimizer& optimizer,
                                uint64_t buffers = 0);

}  // namespace gsel
