// comm/host/kernels.cc: see kernels.h. Loops are written for the compiler to vectorise; nothing here adds in an order
// that depends on the width of its vectors, and products are not contracted into fused additions.
#include "comm/host/kernels.h"

#include <cmath>
#include <limits>
#include <type_traits>

#include "comm/floats.h"

namespace gsel::host {
namespace {

using Half = F16;
using Brain = BF16;

// From double, so that no value is rounded twice. `fraction_bits` and `least` (exponent of the smallest normal) say
// which format; returns the magnitude's bits.
uint16_t round_to(double value, int fraction_bits, int least, uint16_t infinity) {
  const double magnitude = std::fabs(value);
  if (std::isnan(magnitude)) return static_cast<uint16_t>(infinity | (1u << (fraction_bits - 1)));
  if (std::isinf(magnitude)) return infinity;
  const int exponent = magnitude == 0 ? least : std::max(std::ilogb(magnitude), least);
  const double steps = std::nearbyint(std::ldexp(magnitude, fraction_bits - exponent));
  const int64_t bits = (static_cast<int64_t>(exponent - least) << fraction_bits) + static_cast<int64_t>(steps);
  return bits >= infinity ? infinity : static_cast<uint16_t>(bits);
}

uint16_t sign_bit(double value) {
  return std::signbit(value) ? 0x8000 : 0;
}

template <class To>
struct Convert {
  template <class From>
  static To from(From x) {
    if constexpr (std::is_integral_v<To> && std::is_floating_point_v<From>) {
      // 2^digits is exact in every floating point type and is the first value too large.
      const From above = std::ldexp(From{1}, std::numeric_limits<To>::digits);
      if (x >= above) return std::numeric_limits<To>::max();
      if (std::is_signed_v<To> && x < -above) return std::numeric_limits<To>::min();
      if (std::is_unsigned_v<To> && x <= 0) return 0;
      return std::isnan(x) ? To{0} : static_cast<To>(x);
    } else {
      return static_cast<To>(x);
    }
  }
};

template <>
struct Convert<Half> {
  template <class From>
  static Half from(From x) {
    const auto wide = static_cast<double>(x);
    return {static_cast<uint16_t>(sign_bit(wide) | round_to(wide, 10, -14, 0x7c00))};
  }
};

template <>
struct Convert<Brain> {
  static Brain from(float x) {
    const uint32_t bits = bits_of(x);
    const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1)) >> 16;
    const uint32_t quiet = (bits >> 16) | 0x40u;
    return {static_cast<uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded)};
  }
  template <class From>
  static Brain from(From x) {
    const auto wide = static_cast<double>(x);
    return {static_cast<uint16_t>(sign_bit(wide) | round_to(wide, 7, -126, 0x7f80))};
  }
};

template <class T>
T load(T x) {
  return x;
}
float load(Half x) {
  return x.widen();
}
float load(Brain x) {
  return x.widen();
}

template <class To, class From>
void convert(To* dst, const From* src, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) dst[i] = Convert<To>::from(load(src[i]));
}

template <class Body>
void with_type(gsel_dtype dtype, Body&& body) {
  switch (dtype) {
    case GSEL_I8:
      return body(int8_t{});
    case GSEL_U8:
      return body(uint8_t{});
    case GSEL_I16:
      return body(int16_t{});
    case GSEL_U16:
      return body(uint16_t{});
    case GSEL_I32:
      return body(int32_t{});
    case GSEL_U32:
      return body(uint32_t{});
    case GSEL_I64:
      return body(int64_t{});
    case GSEL_U64:
      return body(uint64_t{});
    case GSEL_F16:
      return body(Half{});
    case GSEL_BF16:
      return body(Brain{});
    case GSEL_F32:
      return body(float{});
    case GSEL_F64:
      return body(double{});
    default:
      return;
  }
}

}  // namespace

bool can_cast(gsel_dtype dtype) {
  return dtype >= GSEL_I8 && dtype <= GSEL_F64;
}

void cast(void* dst, gsel_dtype dst_dtype, const void* src, gsel_dtype src_dtype, uint64_t count) {
  with_type(dst_dtype, [&](auto to) {
    with_type(src_dtype, [&](auto from) {
      convert(static_cast<decltype(to)*>(dst), static_cast<const decltype(from)*>(src), count);
    });
  });
}

template <class T>
void scale(T* dst, double factor, uint64_t count) {
  const auto f = static_cast<T>(factor);
  for (uint64_t i = 0; i < count; ++i) dst[i] *= f;
}

template <class T>
void add(T* dst, const T* src, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) dst[i] += src[i];
}

template <class T>
double sum_squares(const T* src, uint64_t count) {
  constexpr uint64_t kLanes = 8;
  double lanes[kLanes] = {};
  const uint64_t whole = count / kLanes * kLanes;
  for (uint64_t i = 0; i < whole; i += kLanes)
    for (uint64_t lane = 0; lane < kLanes; ++lane) {
      const auto x = static_cast<double>(src[i + lane]);
      lanes[lane] += x * x;
    }
  for (uint64_t i = whole; i < count; ++i) {
    const auto x = static_cast<double>(src[i]);
    lanes[i - whole] += x * x;
  }
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

template void scale(float*, double, uint64_t);
template void scale(double*, double, uint64_t);
template void add(float*, const float*, uint64_t);
template void add(double*, const double*, uint64_t);
template double sum_squares(const float*, uint64_t);
template double sum_squares(const double*, uint64_t);

void sgd_step(const gsel_optimizer_step& s) {
  const auto scale_by = static_cast<float>(s.gradient_scale), rate = static_cast<float>(s.learning_rate),
             decay = static_cast<float>(s.weight_decay), momentum = static_cast<float>(s.momentum);
  if (s.momentum == 0) {
    for (uint64_t i = 0; i < s.count; ++i) s.param[i] -= rate * (s.gradient[i] * scale_by + decay * s.param[i]);
    return;
  }
  for (uint64_t i = 0; i < s.count; ++i) {
    const float velocity = momentum * s.state0[i] + (s.gradient[i] * scale_by + decay * s.param[i]);
    s.state0[i] = velocity;
    s.param[i] -= rate * velocity;
  }
}

void sign_sgd_step(const gsel_optimizer_step& s) {
  const auto scale_by = static_cast<float>(s.gradient_scale), rate = static_cast<float>(s.learning_rate);
  const auto kept = static_cast<float>(1 - s.learning_rate * s.weight_decay);
  for (uint64_t i = 0; i < s.count; ++i) {
    const float g = s.gradient[i] * scale_by;
    const float sign = static_cast<float>(g > 0) - static_cast<float>(g < 0);
    s.param[i] = s.param[i] * kept - rate * sign;
  }
}

void adamw_step(const gsel_optimizer_step& s) {
  const auto scale_by = static_cast<float>(s.gradient_scale), beta1 = static_cast<float>(s.beta1),
             beta2 = static_cast<float>(s.beta2), epsilon = static_cast<float>(s.epsilon);
  const auto rest1 = static_cast<float>(1 - s.beta1), rest2 = static_cast<float>(1 - s.beta2);
  const auto kept = static_cast<float>(1 - s.learning_rate * s.weight_decay);
  const auto step = static_cast<float>(s.learning_rate / (1 - std::pow(s.beta1, static_cast<double>(s.t))));
  const auto root = static_cast<float>(1 / std::sqrt(1 - std::pow(s.beta2, static_cast<double>(s.t))));
  for (uint64_t i = 0; i < s.count; ++i) {
    const float g = s.gradient[i] * scale_by;
    const float first = beta1 * s.state0[i] + rest1 * g;
    const float second = beta2 * s.state1[i] + rest2 * (g * g);
    s.state0[i] = first;
    s.state1[i] = second;
    s.param[i] = s.param[i] * kept - step * (first / (std::sqrt(second) * root + epsilon));
  }
}

}  // namespace gsel::host
