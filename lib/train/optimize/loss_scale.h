// train/optimize/loss_scale.h: the loss scale, a factor that keeps fp16 gradients of a small loss from vanishing. It is
// fixed, or raised after a number of good steps and lowered after overflows. Source: Micikevicius et al., ICLR 2018;
// defaults as in DeepSpeed.
#pragma once

#include "base/config.h"

namespace gsel {

class LossScale {
 public:
  explicit LossScale(const Config& config);  // constant 1 unless train.precision is "fp16"
  double value() const { return value_; }
  // Whether an overflow can lower it, at this step or a later one.
  bool may_fall() const { return dynamic_ && value_ > minimum_; }
  // At the end of a step. overflowed: on any rank.
  void update(bool overflowed);

 private:
  bool dynamic_ = false;
  double value_ = 1, minimum_ = 1;
  int64_t window_ = 0, good_steps_ = 0;
  int64_t hysteresis_ = 1, overflows_left_ = 1;
};

}  // namespace gsel
