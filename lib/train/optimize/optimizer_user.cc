// train/optimize/optimizer_user.cc: the embedder's optimizer, called run by run as gsel/train.h specifies. It works on
// f32 values; this file then rounds them to the dtype of the callbacks.
#include <algorithm>
#include <cmath>

#include "base/foreign.h"
#include "train/optimize/optimizer.h"

namespace gsel {
namespace {

// Sums of squares of each parameter and of its update, by index in `params`; 0 if this rank has none of it.
std::vector<double> sums_of_squares(const DeviceContext& device, const BucketShard& shard,
                                    std::span<const int32_t> params) {
  std::vector<double> sums(2 * params.size());
  for (const ParamRun& run : shard.runs) {
    const auto index = static_cast<size_t>(std::ranges::find(params, run.param) - params.begin());
    if (index == params.size())
      fail(GSEL_ERR_INTERNAL, "a run of parameter {} is in a bucket without this parameter", run.param);
    const float* of[2] = {shard.values + run.first, shard.gradient + run.first};
    for (size_t which = 0; which < 2; ++which)
      sums[2 * index + which] += device.sum_squares(of[which], GSEL_F32, static_cast<uint64_t>(run.count));
  }
  return sums;
}

void scale_gradient(const DeviceContext& device, const BucketShard& shard, const ParamRun& run, double factor) {
  if (factor == 1) return;
  device.enqueue(&gsel_device_v1::scale, static_cast<void*>(shard.gradient + run.first), gsel_dtype{GSEL_F32}, factor,
                 static_cast<uint64_t>(run.count));
}

void round_values(const DeviceContext& device, const BucketShard& shard, const ParamRun& run) {
  if (!shard.rounded) return;
  device.enqueue(&gsel_device_v1::cast, static_cast<void*>(static_cast<uint16_t*>(shard.rounded) + run.first),
                 shard.rounded_dtype, static_cast<const void*>(shard.values + run.first), gsel_dtype{GSEL_F32},
                 static_cast<uint64_t>(run.count));
}

}  // namespace

void Optimizer::step_user(const DeviceContext& device, const BucketShard& shard, const StepScale& scale,
                          std::span<const int32_t> params, const SumOverOwners& sum_over_owners) const {
  for (const ParamRun& run : shard.runs) {
    const int64_t whole = model_.params()[run.param].n_elems;
    if (needs_whole_params() && (run.param_first != 0 || run.count != whole))
      fail(GSEL_ERR_INTERNAL, "elements [{}, {}) of {} of parameter \"{}\" came to an optimizer of whole parameters",
           run.param_first, run.param_first + run.count, whole, model_.params()[run.param].name);
    scale_gradient(device, shard, run, rates_of(run, scale).gradient);
    call_user(device, shard, run, scale, {});
  }
  if (needs_param_norms()) {
    std::vector<double> sums = sums_of_squares(device, shard, params);
    sum_over_owners(sums);
    for (const ParamRun& run : shard.runs) {
      const auto index = static_cast<size_t>(std::ranges::find(params, run.param) - params.begin());
      gsel_optimizer_call call{};
      call.phase = 1;
      call.param_norm = std::sqrt(sums[2 * index]);
      call.update_norm = std::sqrt(sums[2 * index + 1]);
      call_user(device, shard, run, scale, call);
    }
  }
  for (const ParamRun& run : shard.runs) round_values(device, shard, run);
}

// `call` has phase and norms.
void Optimizer::call_user(const DeviceContext& device, const BucketShard& shard, const ParamRun& run,
                          const StepScale& scale, gsel_optimizer_call call) const {
  const Param& param = model_.params()[run.param];
  const Rates rates = rates_of(run, scale);
  std::array<char, 512> message{};
  std::array<float*, kMostStates> states{};
  for (int i = 0; i < n_states_; ++i) states[i] = static_cast<float*>(shard.states[i]) + run.first;
  call.struct_size = sizeof call;
  call.param = run.param;
  call.flags = param.flags;
  call.dims = param.dims.data();
  call.n_dims = static_cast<int32_t>(param.dims.size());
  call.n_states = n_states_;
  call.first = run.param_first;
  call.count = run.count;
  call.values = shard.values + run.first;
  call.gradient = shard.gradient + run.first;
  call.states = states.data();
  call.t = scale.step + 1;
  call.learning_rate = rates.learning;
  call.weight_decay = rates.decay;
  call.message = message.data();
  call.message_capacity = message.size();
  call.stream = device.native_compute();
  std::string said;
  const gsel_status status =
      call_foreign([&] { return user_->step(&call, user_->user_data); }, GSEL_ERR_CALLBACK, said);
  if (status == GSEL_OK) return;
  message.back() = '\0';
  if (said.empty()) said = message.data();
  fail(GSEL_ERR_CALLBACK, "the optimizer failed on parameter \"{}\", elements [{}, {}), phase {}: {}", param.name,
       call.first, call.first + call.count, call.phase, reason_of(status, said));
}

}  // namespace gsel
