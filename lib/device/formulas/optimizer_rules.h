// device/formulas/optimizer_rules.h: the update of one element by each optimizer. A rule is made on the host from the
// step's factors and passed by value. Does not know memory and loops.
#pragma once

#include <gsel/device.h>

#include <cmath>

#include "device/formulas/floats.h"

namespace gsel {

// p, m and v are loaded and stored by the loops; a rule with fewer states does not touch the others.
struct Sgd {
  static constexpr int kStates = 0;
  float scale, rate, decay;
  explicit Sgd(const gsel_optimizer_step& s)
      : scale(static_cast<float>(s.gradient_scale)),
        rate(static_cast<float>(s.learning_rate)),
        decay(static_cast<float>(s.weight_decay)) {}
  GSEL_INLINE void operator()(float& p, float g, float&, float&) const { p -= rate * (g * scale + decay * p); }
};

struct Momentum {
  static constexpr int kStates = 1;
  float scale, rate, decay, momentum;
  explicit Momentum(const gsel_optimizer_step& s)
      : scale(static_cast<float>(s.gradient_scale)),
        rate(static_cast<float>(s.learning_rate)),
        decay(static_cast<float>(s.weight_decay)),
        momentum(static_cast<float>(s.momentum)) {}
  GSEL_INLINE void operator()(float& p, float g, float& m, float&) const {
    m = momentum * m + (g * scale + decay * p);
    p -= rate * m;
  }
};

GSEL_INLINE float sign_of(float x) {
  return static_cast<float>(x > 0) - static_cast<float>(x < 0);
}

struct SignSgd {
  static constexpr int kStates = 0;
  float scale, rate, kept;
  explicit SignSgd(const gsel_optimizer_step& s)
      : scale(static_cast<float>(s.gradient_scale)),
        rate(static_cast<float>(s.learning_rate)),
        kept(static_cast<float>(1 - s.learning_rate * s.weight_decay)) {}
  GSEL_INLINE void operator()(float& p, float g, float&, float&) const { p = p * kept - rate * sign_of(g * scale); }
};

struct Lion {
  static constexpr int kStates = 1;
  float scale, rate, kept, beta1, rest1, beta2, rest2;
  explicit Lion(const gsel_optimizer_step& s)
      : scale(static_cast<float>(s.gradient_scale)),
        rate(static_cast<float>(s.learning_rate)),
        kept(static_cast<float>(1 - s.learning_rate * s.weight_decay)),
        beta1(static_cast<float>(s.beta1)),
        rest1(static_cast<float>(1 - s.beta1)),
        beta2(static_cast<float>(s.beta2)),
        rest2(static_cast<float>(1 - s.beta2)) {}
  GSEL_INLINE void operator()(float& p, float g, float& m, float&) const {
    const float scaled = g * scale;
    p = p * kept - rate * sign_of(beta1 * m + rest1 * scaled);
    m = beta2 * m + rest2 * scaled;
  }
};

// `step` and `root` include the bias corrections of step t. Decay is decoupled (kept) or added to the gradient (added).
struct Adam {
  static constexpr int kStates = 2;
  float scale, step, root, kept, added, epsilon, beta1, rest1, beta2, rest2;
  Adam(const gsel_optimizer_step& s, bool decoupled)
      : scale(static_cast<float>(s.gradient_scale)),
        step(static_cast<float>(s.learning_rate / (1 - std::pow(s.beta1, static_cast<double>(s.t))))),
        root(static_cast<float>(1 / std::sqrt(1 - std::pow(s.beta2, static_cast<double>(s.t))))),
        kept(decoupled ? static_cast<float>(1 - s.learning_rate * s.weight_decay) : 1.0f),
        added(decoupled ? 0.0f : static_cast<float>(s.weight_decay)),
        epsilon(static_cast<float>(s.epsilon)),
        beta1(static_cast<float>(s.beta1)),
        rest1(static_cast<float>(1 - s.beta1)),
        beta2(static_cast<float>(s.beta2)),
        rest2(static_cast<float>(1 - s.beta2)) {}
  GSEL_INLINE void move(float& p, float g, float& m, float& v) const {
    m = beta1 * m + rest1 * g;
    v = beta2 * v + rest2 * (g * g);
    p = p * kept - step * (m / (std::sqrt(v) * root + epsilon));
  }
};

struct AdamDecoupled : Adam {
  explicit AdamDecoupled(const gsel_optimizer_step& s) : Adam(s, true) {}
  GSEL_INLINE void operator()(float& p, float g, float& m, float& v) const { move(p, g * scale, m, v); }
};

struct AdamInGradient : Adam {
  explicit AdamInGradient(const gsel_optimizer_step& s) : Adam(s, false) {}
  GSEL_INLINE void operator()(float& p, float g, float& m, float& v) const { move(p, g * scale + added * p, m, v); }
};

}  // namespace gsel
