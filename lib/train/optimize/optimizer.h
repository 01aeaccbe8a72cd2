// train/optimize/optimizer.h: the update rule: a built-in kernel of the device, or the embedder's function. Works on
// the range of a bucket that this rank owns. Does not know who owns the rest.
#pragma once

#include <gsel/train.h>

#include <array>
#include <functional>
#include <optional>
#include <span>

#include "base/config.h"
#include "device/device.h"
#include "model/model.h"
#include "train/optimize/training_numbers.h"

namespace gsel {

constexpr int kMostStates = 4;

// Consecutive elements of one parameter in an owned shard.
struct ParamRun {
  int32_t param = 0;
  int64_t first = 0;  // in the shard
  int64_t count = 0;
  int64_t param_first = 0;  // in the parameter
};

// What a rank owns of a bucket.
struct BucketShard {
  int64_t count = 0;        // elements, padding included
  float* values = nullptr;  // [count] f32: the parameters, or their master copy
  void* rounded = nullptr;  // [count] the 16-bit parameters, if values is a master copy
  gsel_dtype rounded_dtype = GSEL_F32;
  float* gradient = nullptr;                // [count] sums, not yet divided; an embedder's optimizer may overwrite it
  std::array<void*, kMostStates> states{};  // arrays of Optimizer::state_bytes(i, count, runs.size()), 4-byte aligned
  std::span<const ParamRun> runs;           // in order; padding between them
};

// Common to all buckets of a step.
struct StepScale {
  int64_t step = 0;     // from 0; steps skipped for an overflow do not count
  double gradient = 1;  // turns a sum into the mean: 1 / (weight * loss scale)
  double clip = 1;      // clip factor, for parameters that are clipped
};

// GSEL_ERR_ARG: no function, or a number out of range.
void check_optimizer_options(const gsel_optimizer_options& user);

class Optimizer {
 public:
  // user: the embedder's, copied; nullptr for train.optimizer. GSEL_ERR_ARG, GSEL_ERR_CONFIG (a decaying schedule
  // without total_steps).
  Optimizer(const Config& config, const Model& model, const gsel_optimizer_options* user);

  int n_states() const { return n_states_; }
  // Names of state arrays: of built-in optimizers as in PyTorch, "state0" and on of an embedder's.
  std::string state_name(int i) const;
  // Whether states have another form than one f32 for each element.
  bool has_8bit_states() const { return kind_ == GSEL_OPTIMIZER_ADAMW_8BIT; }
  // Bytes of state array i over a shard of count elements in n_runs runs; zeroed before the first step. 8-bit state is
  // [count] codes, padded to a multiple of 4, then a scale for each block of 256 elements: byte_blocks.h. Blocks do not
  // depend on how parameters were put in buckets.
  uint64_t state_bytes(int i, int64_t count, int64_t n_runs) const;
  bool needs_whole_params() const { return user_ && user_->needs == GSEL_NEEDS_WHOLE_PARAM; }
  bool is_users() const { return user_.has_value(); }
  const gsel_optimizer_options* users() const { return user_ ? &*user_ : nullptr; }
  bool poisons_gradients() const { return user_.has_value(); }
  bool needs_param_norms() const { return user_ && user_->needs == GSEL_NEEDS_PARAM_NORM; }
  // By schedule and warm-up, or as set; without lr_factor.
  double learning_rate(int64_t step) const;
  // Overrides the configured rate from now on.
  void set_learning_rate(double rate) { set_rate_ = rate; }
  const std::optional<double>& set_rate() const { return set_rate_; }
  void restore_rate(const std::optional<double>& rate) { set_rate_ = rate; }

  // Steps the shard. sum_over_owners: sums numbers in place over all ranks that own shards of the same parameters;
  // every rank calls it equally often with equally many numbers (two per parameter of the bucket, for norms).
  // GSEL_ERR_CALLBACK with the parameter and the text that the embedder's function wrote.
  using SumOverOwners = std::function<void(std::span<double>)>;
  // Takes the calls of the built-in rules in place of the device. Then adjacent runs that differ in no step are one
  // call.
  using StepLaunch = std::function<void(const gsel_optimizer_step&)>;
  // Whether its steps can be part of a graph of this device.
  bool has_graphs(const DeviceContext& device) const {
    return !user_ && device.table().step_factors && device.table().update_scale;
  }
  // In a graph. The factors of each kernel, [GSEL_STEP_FACTOR_BYTES] for each of most_calls() of a shard, differ from
  // launch to launch: write_factors writes those of a step to memory of the host and returns where it ended;
  // step_in_graph enqueues kernels that read them from memory of the device, and the result of update_scale.
  static size_t most_calls(size_t n_runs) { return n_runs + 1; }
  char* write_factors(const DeviceContext& device, const BucketShard& shard, int64_t step, char* to) const;
  const char* step_in_graph(const DeviceContext& device, const BucketShard& shard, const char* factors,
                            const double* update_scale, const StepLaunch& launch = {}) const;
  // The calls of a step: their arrays and counts. Their factors are undefined.
  void list_calls(const BucketShard& shard, const StepLaunch& launch) const;
  void step(const DeviceContext& device, const BucketShard& shard, const StepScale& scale,
            std::span<const int32_t> params, const SumOverOwners& sum_over_owners, const StepLaunch& launch = {}) const;

 private:
  // The factors for one parameter in one step.
  struct Rates {
    double gradient = 1;  // turns the sum into the clipped mean
    double learning = 0;  // with schedule and lr_factor
    double decay = 0;
    bool operator==(const Rates&) const = default;
  };
  Rates rates_of(const ParamRun& run, const StepScale& scale) const;
  // Visits the calls of a shard. is_same: whether two adjacent runs are one call.
  template <class IsSame, class Visit>
  void visit_calls(const BucketShard& shard, const StepScale& scale, IsSame&& is_same, Visit&& visit) const;
  bool are_alike(const ParamRun& a, const ParamRun& b) const;
  void step_built_in(const DeviceContext& device, const BucketShard& shard, const StepScale& scale,
                     const StepLaunch& launch) const;
  void step_user(const DeviceContext& device, const BucketShard& shard, const StepScale& scale,
                 std::span<const int32_t> params, const SumOverOwners& sum_over_owners) const;
  void call_user(const DeviceContext& device, const BucketShard& shard, const ParamRun& run, const StepScale& scale,
                 gsel_optimizer_call call) const;

  const Model& model_;
  const Config config_;
  std::optional<gsel_optimizer_options> user_;
  std::optional<double> set_rate_;
  int32_t kind_ = 0;  // GSEL_OPTIMIZER_*
  int n_states_ = 0;
};

// ---- the loss scale ------------------------------------------------------------------------------------------------

// A factor that keeps fp16 gradients of a small loss from vanishing. It is fixed, or raised after a number of good
// steps and lowered after overflows. Source: Micikevicius et al., ICLR 2018; defaults as in DeepSpeed.
class LossScale {
 public:
  explicit LossScale(const Config& config);  // constant 1 unless train.precision is "fp16"
  double value() const { return value_; }
  // Whether an overflow can lower it, at this step or a later one.
  bool may_fall() const { return dynamic_ && value_ > minimum_; }
  // For a checkpoint: with the counters that change it. Restored where it changes; a fixed scale stays as configured.
  void keep(TrainingNumbers& numbers) const;
  void restore(const TrainingNumbers& numbers);
  // At the end of a step. overflowed: on any rank.
  void update(bool overflowed);

 private:
  bool dynamic_ = false;
  double value_ = 1, minimum_ = 1;
  int64_t window_ = 0, good_steps_ = 0;
  int64_t hysteresis_ = 1, overflows_left_ = 1;
};

}  // namespace gsel
