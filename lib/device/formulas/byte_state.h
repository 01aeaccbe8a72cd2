// device/formulas/byte_state.h: the codes of 8-bit optimizer state, and the factors of a step that uses them.
// Does not know memory and loops.
#pragma once

#include <gsel/device.h>

#include <bit>
#include <cmath>

#include "device/formulas/floats.h"

namespace gsel {

// Value of a code for scale 1; code 0 is 0. Dynamic quantisation (Dettmers et al., ICLR 2022): the highest set bit of a
// magnitude c selects the decade, the bits below it divide the decade evenly, and the value is the middle of its part:
//   signed    bit 7 is the sign, c the other bits; decade i = 0..6, parts 2^i = highest bit; code 128 is 1
//   unsigned  c is the code; decade i = 0..6, parts 2^(i+1) = highest bit; code 1 is 1
//   value     10^(i-6) * (0.1 + 0.9 * (c - parts + 0.5) / parts)
// A number gets the code of the nearest value. A positive second moment (unsigned) never becomes zero, since an update
// divides by its root.
constexpr int kDecades = 7;
constexpr double kScales[kDecades] = {1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1};  // upper ends of the decades

// kFirst: parts of the lowest decade. Decade i has the codes [kFirst * 2^i, kFirst * 2^(i+1)).
template <int kFirst, int kOne>
struct Format {
  static constexpr double value(int code) {
    if (code == 0) return 0;
    if (code == kOne) return 1;
    const int parts = static_cast<int>(std::bit_floor(static_cast<unsigned>(code)));
    const int decade = std::countr_zero(static_cast<unsigned>(parts / kFirst));
    return kScales[decade] * (0.1 + 0.9 * (code - parts + 0.5) / parts);
  }
  static constexpr int lowest(int decade) { return kFirst << decade; }

  // The midpoint between a decade's lowest code and the code below it. Decade 7 is the value 1.
  static constexpr double threshold(int decade) {
    const double above = decade == kDecades ? 1.0 : value(lowest(decade));
    const double below = decade == 0 ? 0.0 : value(lowest(decade) - 1);
    return (above + below) / 2;
  }
};

// Codes of magnitudes: 1 to 127, and 128 for the value 1. -1 has no code, so it becomes the nearest one.
using Signed = Format<1, 128>;
// Codes 2 to 255, and 1 for the value 1.
using Unsigned = Format<2, 1>;

// The values of all codes, for scale 1.
struct CodeValues {
  float of[256];
};
template <class F, bool kSigned>
constexpr CodeValues code_values() {
  CodeValues values{};
  for (int code = 0; code < 256; ++code) {
    const bool minus = kSigned && code > 128;
    values.of[code] = static_cast<float>(minus ? -F::value(code - 128) : F::value(code));
  }
  return values;
}

template <class F, int kDecade>
GSEL_INLINE void reach_decade(float x, float& parts, float& per_part) {
  constexpr float threshold = static_cast<float>(F::threshold(kDecade)),
                  lowest = static_cast<float>(F::lowest(kDecade)),
                  per_part_here = static_cast<float>(F::lowest(kDecade) / (0.9 * kScales[kDecade]));
  const bool reached = x >= threshold;
  parts = reached ? lowest : parts;
  per_part = reached ? per_part_here : per_part;
}

// The code for x: finds the highest decade whose threshold x has reached, then the part of it. A chain of selects,
// which vectorises without table look-ups.
template <class F>
GSEL_INLINE int32_t magnitude_code(float x) {
  constexpr float first_parts = static_cast<float>(F::lowest(0)),
                  first_per_part = static_cast<float>(F::lowest(0) / (0.9 * kScales[0]));
  float parts = first_parts, per_part = first_per_part;
  reach_decade<F, 1>(x, parts, per_part);
  reach_decade<F, 2>(x, parts, per_part);
  reach_decade<F, 3>(x, parts, per_part);
  reach_decade<F, 4>(x, parts, per_part);
  reach_decade<F, 5>(x, parts, per_part);
  reach_decade<F, 6>(x, parts, per_part);
  // parts + (x / scale - 0.1) / 0.9 * parts, clamped to the decade's codes.
  const float code = x * per_part + parts * static_cast<float>(8.0 / 9.0);
  const float bounded = code < parts ? parts : code, most = parts + parts - 1;
  return static_cast<int32_t>(bounded < most ? bounded : most);
}

GSEL_INLINE uint8_t signed_code(float x) {
  constexpr float least = static_cast<float>(Signed::threshold(0)),
                  one = static_cast<float>(Signed::threshold(kDecades));
  const float magnitude = x < 0 ? -x : x;
  int32_t code = magnitude_code<Signed>(magnitude);
  code = magnitude < least ? 0 : x < 0 ? code + 128 : code;
  return static_cast<uint8_t>(x >= one ? 128 : code);
}

GSEL_INLINE uint8_t unsigned_code(float x) {
  constexpr float one = static_cast<float>(Unsigned::threshold(kDecades));
  const int32_t code = magnitude_code<Unsigned>(x);
  const int32_t below_one = x > 0 ? code : 0;
  return static_cast<uint8_t>(x >= one ? 1 : below_one);
}

struct Factors {
  float scale, step, root, kept, epsilon, beta1, rest1, beta2, rest2;
  explicit Factors(const gsel_optimizer_step& s)
      : scale(static_cast<float>(s.gradient_scale)),
        step(static_cast<float>(s.learning_rate / (1 - std::pow(s.beta1, static_cast<double>(s.t))))),
        root(static_cast<float>(1 / std::sqrt(1 - std::pow(s.beta2, static_cast<double>(s.t))))),
        kept(static_cast<float>(1 - s.learning_rate * s.weight_decay)),
        epsilon(static_cast<float>(s.epsilon)),
        beta1(static_cast<float>(s.beta1)),
        rest1(static_cast<float>(1 - s.beta1)),
        beta2(static_cast<float>(s.beta2)),
        rest2(static_cast<float>(1 - s.beta2)) {}
};

}  // namespace gsel
