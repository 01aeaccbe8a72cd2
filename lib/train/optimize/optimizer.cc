// train/optimize/optimizer.cc: see optimizer.h. The built-in rules are kernels of the device. The embedder's
// optimizer is called run by run as gsel/train.h specifies; it works on f32 values, which are then rounded to the dtype
// of the callbacks.
#include "train/optimize/optimizer.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/foreign.h"
#include "train/optimize/byte_blocks.h"

namespace gsel {
namespace {

struct Kind {
  std::string_view name;
  int32_t kind;
  int n_states;
};
constexpr Kind kKinds[] = {
    {"adamw", GSEL_OPTIMIZER_ADAMW, 2}, {"adam", GSEL_OPTIMIZER_ADAM, 2},
    {"sgd", GSEL_OPTIMIZER_SGD, 1},     {"adamw_8bit", GSEL_OPTIMIZER_ADAMW_8BIT, 2},
    {"lion", GSEL_OPTIMIZER_LION, 1},   {"sign_sgd", GSEL_OPTIMIZER_SIGN_SGD, 0},
};

const Kind& kind_named(std::string_view name) {
  for (const Kind& kind : kKinds)
    if (kind.name == name) return kind;
  fail(GSEL_ERR_CONFIG, "train.optimizer = \"{}\" is not known", name);
}

// A decaying schedule needs to know its end, and wsd also where its decay begins.
void check_schedule(const Config& config) {
  const auto& train = config.train;
  auto refuse = [&](const char* key, const std::string& why) {
    Place place = config.place_of(key);
    if (place.line == 0) place = config.place_of("train.schedule");
    throw Error(GSEL_ERR_CONFIG, fmt::format("{}train.schedule = \"{}\" {}", place_prefix(place), train.schedule, why))
        .at(place);
  };
  if (train.schedule == "constant") return;
  if (train.total_steps <= train.warmup_steps)
    refuse("train.total_steps",
           fmt::format("ends at train.total_steps, which is {}; expected more than train.warmup_steps = {}",
                       train.total_steps, train.warmup_steps));
  const int64_t most = train.total_steps - train.warmup_steps;
  if (train.schedule == "wsd" && (train.decay_steps < 1 || train.decay_steps > most))
    refuse("train.decay_steps", fmt::format("falls in the last train.decay_steps, which is {}; expected 1 to {}, the "
                                            "steps from train.warmup_steps to train.total_steps",
                                            train.decay_steps, most));
}

// `rounded` advanced by `first` 16-bit elements.
void* rounded_at(const BucketShard& shard, int64_t first) {
  return shard.rounded ? static_cast<uint16_t*>(shard.rounded) + first : nullptr;
}

}  // namespace

void check_optimizer_options(const gsel_optimizer_options& user) {
  if (!user.step) fail(GSEL_ERR_ARG, "gsel_optimizer_options.step is NULL; an optimizer is its function");
  if (user.needs < GSEL_NEEDS_ELEMENTS || user.needs > GSEL_NEEDS_WHOLE_PARAM)
    fail(GSEL_ERR_ARG, "gsel_optimizer_options.needs is {}; expected one of GSEL_NEEDS_*, 0 to 2", user.needs);
  if (user.n_states < 0 || user.n_states > kMostStates)
    fail(GSEL_ERR_ARG, "gsel_optimizer_options.n_states is {}; expected 0 to {}", user.n_states, kMostStates);
}

Optimizer::Optimizer(const Config& config, const Model& model, const gsel_optimizer_options* user)
    : model_(model), config_(config) {
  check_schedule(config_);
  if (user) {
    check_optimizer_options(*user);
    user_ = *user;
    n_states_ = user->n_states;
    return;
  }
  const Kind& kind = kind_named(config_.train.optimizer);
  kind_ = kind.kind;
  n_states_ = kind_ == GSEL_OPTIMIZER_SGD && config_.train.momentum == 0 ? 0 : kind.n_states;
}

std::string Optimizer::state_name(int i) const {
  if (user_) return fmt::format("state{}", i);
  if (kind_ == GSEL_OPTIMIZER_SGD) return "momentum_buffer";
  return i == 0 ? "exp_avg" : "exp_avg_sq";
}

uint64_t Optimizer::state_bytes(int i, int64_t count, int64_t n_runs) const {
  if (i >= n_states_ || count == 0) return 0;
  if (kind_ != GSEL_OPTIMIZER_ADAMW_8BIT) return sizeof(float) * static_cast<uint64_t>(count);
  // Upper bound for runs of any sizes, the first of which may begin inside a block.
  return static_cast<uint64_t>(codes_bytes(count)) +
         sizeof(float) * static_cast<uint64_t>(count / kByteBlock + n_runs + 1);
}

double Optimizer::learning_rate(int64_t step) const {
  if (set_rate_) return *set_rate_;
  const auto& train = config_.train;
  if (step < train.warmup_steps)
    return train.learning_rate * static_cast<double>(step + 1) / static_cast<double>(train.warmup_steps);
  if (train.schedule == "constant") return train.learning_rate;
  if (step >= train.total_steps) return train.final_learning_rate;
  const int64_t falls_from = train.schedule == "wsd" ? train.total_steps - train.decay_steps : train.warmup_steps;
  if (step < falls_from) return train.learning_rate;
  const double done = static_cast<double>(step - falls_from) / static_cast<double>(train.total_steps - falls_from);
  const double left = train.schedule == "cosine" ? (1 + std::cos(std::numbers::pi * done)) / 2 : 1 - done;
  return train.final_learning_rate + left * (train.learning_rate - train.final_learning_rate);
}

Optimizer::Rates Optimizer::rates_of(const ParamRun& run, const StepScale& scale) const {
  const Param& param = model_.params()[run.param];
  Rates rates;
  rates.gradient = param.flags & GSEL_PARAM_NO_CLIP ? scale.gradient : scale.gradient * scale.clip;
  rates.learning = learning_rate(scale.step) * param.lr_factor;
  rates.decay = param.flags & GSEL_PARAM_NO_DECAY ? 0 : config_.train.weight_decay;
  return rates;
}

void Optimizer::step(const DeviceContext& device, const BucketShard& shard, const StepScale& scale,
                     std::span<const int32_t> params, const SumOverOwners& sum_over_owners,
                     const StepLaunch& launch) const {
  if (user_)
    step_user(device, shard, scale, params, sum_over_owners);
  else
    step_built_in(device, shard, scale, launch);
}

// With 8-bit state a call begins a block: one call for each run, and one for the end of a block that another rank
// begins.
template <class IsSame, class Visit>
void Optimizer::visit_calls(const BucketShard& shard, const StepScale& scale, IsSame&& is_same, Visit&& visit) const {
  const bool bytes = kind_ == GSEL_OPTIMIZER_ADAMW_8BIT;
  gsel_optimizer_step step{};
  step.struct_size = sizeof step;
  step.kind = kind_;
  step.t = scale.step + 1;
  step.momentum = config_.train.momentum;
  step.beta1 = config_.train.beta1;
  step.beta2 = config_.train.beta2;
  step.epsilon = config_.train.epsilon;
  step.param16_dtype = shard.rounded_dtype;
  int64_t block = 0;
  int64_t done = 0;  // elements of the run
  for (size_t i = 0; i < shard.runs.size();) {
    const ParamRun& run = shard.runs[i];
    const int64_t first = run.first + done;
    const Rates rates = rates_of(run, scale);
    int64_t count = run.count - done;
    if (bytes && done == 0 && run.param_first % kByteBlock != 0) count = first_byte_block(run);
    done = first + count < run.first + run.count ? done + count : 0;
    i += done == 0;
    while (!bytes && i < shard.runs.size() && shard.runs[i].first == first + count && is_same(run, shard.runs[i]))
      count += shard.runs[i++].count;
    auto state = [&](int which) {
      auto* array = static_cast<char*>(shard.states[which]);
      return array ? reinterpret_cast<float*>(array + (bytes ? first : first * int64_t{sizeof(float)})) : nullptr;
    };
    auto block_scales = [&](int which) {
      auto* array = static_cast<char*>(shard.states[which]);
      return array && bytes ? reinterpret_cast<float*>(array + codes_bytes(shard.count)) + block : nullptr;
    };
    step.param = shard.values + first;
    step.gradient = shard.gradient + first;
    step.state0 = state(0);
    step.state1 = state(1);
    step.scale0 = block_scales(0);
    step.scale1 = block_scales(1);
    step.count = static_cast<uint64_t>(count);
    step.gradient_scale = rates.gradient;
    step.learning_rate = rates.learning;
    step.weight_decay = rates.decay;
    step.param16 = rounded_at(shard, first);
    visit(step, run);
    block += (count + kByteBlock - 1) / kByteBlock;
  }
}

// Adjacent runs with equal rates are one call.
void Optimizer::step_built_in(const DeviceContext& device, const BucketShard& shard, const StepScale& scale,
                              const StepLaunch& launch) const {
  auto is_same = [&](const ParamRun& a, const ParamRun& b) {
    return launch ? are_alike(a, b) : rates_of(a, scale) == rates_of(b, scale);
  };
  visit_calls(shard, scale, is_same, [&](const gsel_optimizer_step& step, const ParamRun&) {
    launch ? launch(step) : device.enqueue(&gsel_device_v1::optimizer_step, &step);
  });
}

void Optimizer::list_calls(const BucketShard& shard, const StepLaunch& launch) const {
  auto is_same = [&](const ParamRun& a, const ParamRun& b) { return are_alike(a, b); };
  visit_calls(shard, {}, is_same, [&](const gsel_optimizer_step& call, const ParamRun&) { launch(call); });
}

// ---- steps in graphs ------------------------------------------------------------------------------------------------

// In every step.
bool Optimizer::are_alike(const ParamRun& a, const ParamRun& b) const {
  const Param &p = model_.params()[a.param], &q = model_.params()[b.param];
  constexpr uint32_t flags = GSEL_PARAM_NO_CLIP | GSEL_PARAM_NO_DECAY;
  return (p.flags & flags) == (q.flags & flags) && p.lr_factor == q.lr_factor;
}

char* Optimizer::write_factors(const DeviceContext& device, const BucketShard& shard, int64_t step, char* to) const {
  auto is_same = [&](const ParamRun& a, const ParamRun& b) { return are_alike(a, b); };
  visit_calls(shard, {step, 1, 1}, is_same, [&](const gsel_optimizer_step& call, const ParamRun&) {
    device.run(&gsel_device_v1::step_factors, &call, static_cast<void*>(to));
    to += GSEL_STEP_FACTOR_BYTES;
  });
  return to;
}

const char* Optimizer::step_in_graph(const DeviceContext& device, const BucketShard& shard, const char* factors,
                                     const double* update_scale, const StepLaunch& launch) const {
  auto is_same = [&](const ParamRun& a, const ParamRun& b) { return are_alike(a, b); };
  visit_calls(shard, {}, is_same, [&](const gsel_optimizer_step& given, const ParamRun& run) {
    gsel_optimizer_step call = given;
    call.factors = factors;
    call.update_scale = update_scale + !(model_.params()[run.param].flags & GSEL_PARAM_NO_CLIP);
    launch ? launch(call)
           : device.enqueue(&gsel_device_v1::optimizer_step, static_cast<const gsel_optimizer_step*>(&call));
    factors += GSEL_STEP_FACTOR_BYTES;
  });
  return factors;
}

// ---- the embedder's optimizer --------------------------------------------------------------------------------------

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
  std::string text;
  const gsel_status status =
      call_foreign([&] { return user_->step(&call, user_->user_data); }, GSEL_ERR_CALLBACK, text);
  if (status == GSEL_OK) return;
  message.back() = '\0';
  if (text.empty()) text = message.data();
  fail(GSEL_ERR_CALLBACK, "the optimizer failed on parameter \"{}\", elements [{}, {}), phase {}: {}", param.name,
       call.first, call.first + call.count, call.phase, reason_of(status, text));
}

// ---- the loss scale ------------------------------------------------------------------------------------------------

// The rule is that of the published DynamicLossScaler without consecutive hysteresis: once the scale was lowered, each
// further overflow lowers it again, until a whole window had no overflow.

LossScale::LossScale(const Config& config) {
  const auto& train = config.train;
  if (train.precision != "fp16") return;
  dynamic_ = train.loss_scale == 0;
  if (!dynamic_) {
    value_ = train.loss_scale;
    return;
  }
  minimum_ = train.loss_scale_minimum;
  value_ = std::max(train.loss_scale_initial, minimum_);
  window_ = train.loss_scale_window;
  hysteresis_ = overflows_left_ = train.loss_scale_hysteresis;
}

void LossScale::keep(TrainingNumbers& numbers) const {
  numbers.loss_scale = value_;
  numbers.good_steps = good_steps_;
  numbers.overflows_left = dynamic_ ? overflows_left_ : 0;  // else there is no scale to go on with
}

void LossScale::restore(const TrainingNumbers& numbers) {
  if (!dynamic_ || numbers.overflows_left < 1) return;
  value_ = std::max(numbers.loss_scale, minimum_);
  good_steps_ = numbers.good_steps;
  overflows_left_ = std::min(numbers.overflows_left, hysteresis_);
}

void LossScale::update(bool overflowed) {
  if (!dynamic_) return;
  if (overflowed) {
    good_steps_ = 0;
    if (overflows_left_ > 1)
      --overflows_left_;
    else
      value_ = std::max(value_ / 2, minimum_);
    return;
  }
  if (++good_steps_ < window_) return;
  good_steps_ = 0;
  overflows_left_ = hysteresis_;
  value_ *= 2;
}

}  // namespace gsel
