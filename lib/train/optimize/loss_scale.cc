// train/optimize/loss_scale.cc: see loss_scale.h. The rule is that of the published DynamicLossScaler without
// consecutive hysteresis: once the scale was lowered, each further overflow lowers it again, until a whole window had
// no overflow.
#include "train/optimize/loss_scale.h"

#include <algorithm>

namespace gsel {

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
