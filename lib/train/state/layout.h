// train/state/layout.h: the sizes of everything that a rank keeps, computed from the program alone. Storage allocates
// these sizes and the forecast sums them, so the two cannot disagree. Does not know memory.
#pragma once

#include <array>
#include <vector>

#include "base/config.h"
#include "model/model.h"
#include "program/program.h"
#include "train/memory/ledger.h"
#include "train/optimize/optimizer.h"

namespace gsel {

// What parameters that are here are stored in: the program's buckets, then one for the frozen ones of each dtype.
std::vector<ProgramBucket> stored_buckets(const Program& program);

struct BucketLayout {
  gsel_dtype dtype = GSEL_F32;  // of its parameters as they are kept
  int64_t elems = 0;            // of its parameters
  int64_t padded = 0;           // up to the end of the last shard
  gsel_range own{};             // what this rank keeps state of and steps, in elements; all of it without shards
  bool steps = true;            // false where another rank owns the bucket, and for frozen parameters
  bool whole_params = true;     // kept whole; else a shard (SHARD_PARAM), or nothing (another rank's)
  bool whole_gradient = true;   // the same of gradients
  std::vector<ParamRun> runs;   // parameters, or parts of them, that lie in `own`
  bool offload_state = false, offload_params = false;  // kept in offload memory
  // Kept between steps, by this rank.
  uint64_t param_bytes = 0, gradient_bytes = 0, state_bytes = 0, master_bytes = 0;
  std::array<uint64_t, kMostStates> each_state_bytes{};  // add up to state_bytes
  // Windows: what a gather, and the whole gradient of a sharded one, need while they are open. 0: never opened.
  uint64_t param_window_bytes = 0, gradient_window_bytes = 0;
  // What is kept of a step until it is validated, where the program steps before; with gradients where they are
  // poisoned.
  uint64_t copy_bytes = 0;
  bool copies_gradient = false;

  int64_t own_elems() const { return own.end - own.begin; }
  void add_to(MemoryPartBytes& parts) const;
};
// One for each of stored_buckets.
std::vector<BucketLayout> layouts_of(const Program& program, const Optimizer& optimizer);

// Numbers that ranks exchange in a step: loss, norm, overflow, and the norms that an optimizer sums over owners.
// The executor keeps them in one piece of MemoryPart::staging; at its end those that are under way from one step to the
// next.
constexpr uint64_t kOptimisticNumbers = 2;
uint64_t staging_bytes(const Program& program, const Optimizer& optimizer);

// Bytes of every part on this rank: what is kept and the arena of windows (train/state/arena_plan.h).
MemoryPartBytes forecast_memory(const Model& model, const Program& program, const Optimizer& optimizer);

}  // namespace gsel
