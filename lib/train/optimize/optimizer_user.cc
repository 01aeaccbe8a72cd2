// train/optimize/optimizer_user.cc: the embedder's optimizer, called piece by piece as gsel/train.h promises. It works
// on f32 values; this file then rounds them to what callbacks get.
#include <algorithm>
#include <cmath>

#include "base/foreign.h"
#include "train/optimize/optimizer.h"

namespace gsel {
namespace {

// Squares of a parameter and of its update, side by side, by index in `params`. What this rank owns nothing of is zero.
std::vector<double> sums_of_squares(const DeviceContext& device, const Stretch& stretch,
                                    std::span<const int32_t> params) {
  std::vector<double> sums(2 * params.size());
  for (const Piece& piece : stretch.pieces) {
    const auto index = static_cast<size_t>(std::ranges::find(params, piece.param) - params.begin());
    if (index == params.size())
      fail(GSEL_ERR_INTERNAL, "a piece of parameter {} stands in a bucket without it", piece.param);
    const float* of[2] = {stretch.values + piece.first, stretch.gradient + piece.first};
    for (size_t which = 0; which < 2; ++which) {
      double sum = 0;
      device.run(&gsel_device_v1::sum_squares, static_cast<const void*>(of[which]), gsel_dtype{GSEL_F32},
                 static_cast<uint64_t>(piece.count), &sum, kNow);
      sums[2 * index + which] += sum;
    }
  }
  return sums;
}

void scale_gradient(const DeviceContext& device, const Stretch& stretch, const Piece& piece, double factor) {
  if (factor == 1) return;
  device.run(&gsel_device_v1::scale, static_cast<void*>(stretch.gradient + piece.first), gsel_dtype{GSEL_F32}, factor,
             static_cast<uint64_t>(piece.count), kNow);
}

void round_values(const DeviceContext& device, const Stretch& stretch, const Piece& piece) {
  if (!stretch.rounded) return;
  device.run(&gsel_device_v1::cast, static_cast<void*>(static_cast<uint16_t*>(stretch.rounded) + piece.first),
             stretch.rounded_dtype, static_cast<const void*>(stretch.values + piece.first), gsel_dtype{GSEL_F32},
             static_cast<uint64_t>(piece.count), kNow);
}

}  // namespace

void Optimizer::step_user(const DeviceContext& device, const Stretch& stretch, const StepScale& scale,
                          std::span<const int32_t> params, const SumOverOwners& sum_over_owners) const {
  for (const Piece& piece : stretch.pieces) {
    const int64_t whole = model_.params()[piece.param].n_elems;
    if (needs_whole_params() && (piece.param_first != 0 || piece.count != whole))
      fail(GSEL_ERR_INTERNAL, "elements [{}, {}) of {} of parameter \"{}\" came to an optimizer of whole parameters",
           piece.param_first, piece.param_first + piece.count, whole, model_.params()[piece.param].name);
    scale_gradient(device, stretch, piece, rates_of(piece, scale).gradient);
    call_user(stretch, piece, scale, {});
  }
  if (needs_param_norms()) {
    std::vector<double> sums = sums_of_squares(device, stretch, params);
    sum_over_owners(sums);
    for (const Piece& piece : stretch.pieces) {
      const auto index = static_cast<size_t>(std::ranges::find(params, piece.param) - params.begin());
      gsel_optimizer_call call{};
      call.phase = 1;
      call.param_norm = std::sqrt(sums[2 * index]);
      call.update_norm = std::sqrt(sums[2 * index + 1]);
      call_user(stretch, piece, scale, call);
    }
  }
  for (const Piece& piece : stretch.pieces) round_values(device, stretch, piece);
}

// `call` has phase and norms.
void Optimizer::call_user(const Stretch& stretch, const Piece& piece, const StepScale& scale,
                          gsel_optimizer_call call) const {
  const Param& param = model_.params()[piece.param];
  const Rates rates = rates_of(piece, scale);
  std::array<char, 512> message{};
  std::array<float*, kMostStates> states{};
  for (int i = 0; i < n_states_; ++i) states[i] = static_cast<float*>(stretch.states[i]) + piece.first;
  call.struct_size = sizeof call;
  call.param = piece.param;
  call.flags = param.flags;
  call.dims = param.dims.data();
  call.n_dims = static_cast<int32_t>(param.dims.size());
  call.n_states = n_states_;
  call.first = piece.param_first;
  call.count = piece.count;
  call.values = stretch.values + piece.first;
  call.gradient = stretch.gradient + piece.first;
  call.states = states.data();
  call.t = scale.step + 1;
  call.learning_rate = rates.learning;
  call.weight_decay = rates.decay;
  call.message = message.data();
  call.message_capacity = message.size();
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
