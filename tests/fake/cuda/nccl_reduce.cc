// fake/cuda/nccl_reduce.cc: reductions as a ring makes them. Block b of the elements starts at rank b + 1 and comes to
// rank b last, rounded to its type at each step: another order than the host's, and the same result on every rank.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "nccl_comm.h"

namespace fake_nccl {
namespace {

// A format of 16 bits by arithmetic, so that it shares nothing with gsel's own.
template <int kFraction, int kBias>
struct Small {
  uint16_t bits;

  double widen() const {
    const int exponent = bits >> kFraction & ((1 << (15 - kFraction)) - 1), fraction = bits & ((1 << kFraction) - 1);
    const double sign = bits >> 15 ? -1 : 1;
    if (exponent == (1 << (15 - kFraction)) - 1) return fraction ? NAN : sign * INFINITY;
    const double significand = exponent ? (1 << kFraction) + fraction : fraction;
    return sign * std::ldexp(significand, std::max(exponent, 1) - kBias - kFraction);
  }
  static Small narrow(double x) {
    constexpr int kMost = (1 << (15 - kFraction)) - 1;  // the exponent of infinity
    const uint16_t sign = std::signbit(x) ? 0x8000 : 0;
    const auto of = [&](int magnitude) { return Small{static_cast<uint16_t>(sign | magnitude)}; };
    if (std::isnan(x)) return of((kMost << kFraction) + (1 << (kFraction - 1)));
    if (x == 0) return of(0);
    if (std::isinf(x)) return of(kMost << kFraction);
    int exponent = 0;
    std::frexp(x, &exponent);
    exponent = std::max(exponent - 1, 1 - kBias);
    const auto steps = static_cast<int>(std::nearbyint(std::ldexp(std::fabs(x), kFraction - exponent)));
    const int magnitude = steps + ((exponent + kBias - 1) << kFraction);  // a carry moves on into the exponent
    return of(std::min(magnitude, kMost << kFraction));
  }
};
using Half = Small<10, 15>;
using Bfloat = Small<7, 127>;

float value_of(Half x) {
  return static_cast<float>(x.widen());
}
float value_of(Bfloat x) {
  return static_cast<float>(x.widen());
}
template <class T>
T value_of(T x) {
  return x;
}

template <class T, class V>
T rounded(V value) {
  if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, Bfloat>)
    return T::narrow(value);
  else
    return static_cast<T>(value);
}

template <class V>
V combined(int op, V a, V b) {
  using Wide = typename std::conditional_t<std::is_integral_v<V>, std::make_unsigned<V>, std::type_identity<V>>::type;
  switch (op) {
    case kProd:
      return static_cast<V>(static_cast<Wide>(a) * static_cast<Wide>(b));
    case kMax:
      return std::max(a, b);
    case kMin:
      return std::min(a, b);
    default:
      return static_cast<V>(static_cast<Wide>(a) + static_cast<Wide>(b));
  }
}

template <class T>
void reduce_as(int op, const std::vector<const char*>& inputs, char* out, uint64_t first, uint64_t count) {
  const uint64_t n = inputs.size();
  const uint64_t block = std::max<uint64_t>((count + n - 1) / n, 1);
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t last = i / block;
    T sum{};
    for (uint64_t step = 1; step <= n; ++step) {
      T next;
      memcpy(&next, inputs[(last + step) % n] + (first + i) * sizeof(T), sizeof next);
      sum = step == 1 ? next : rounded<T>(combined(op, value_of(sum), value_of(next)));
    }
    if (op == kAvg) sum = rounded<T>(value_of(sum) / static_cast<decltype(value_of(sum))>(n));
    memcpy(out + i * sizeof(T), &sum, sizeof sum);
  }
}

}  // namespace

uint64_t bytes_of(int type) {
  static constexpr uint64_t kBytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
  return type >= 0 && type < 10 ? kBytes[type] : 0;
}

void reduce(int type, int op, const std::vector<const char*>& inputs, char* out, uint64_t first, uint64_t count) {
  static constexpr decltype(&reduce_as<float>) kAll[] = {
      reduce_as<int8_t>,   reduce_as<uint8_t>, reduce_as<int32_t>, reduce_as<uint32_t>, reduce_as<int64_t>,
      reduce_as<uint64_t>, reduce_as<Half>,    reduce_as<float>,   reduce_as<double>,   reduce_as<Bfloat>};
  kAll[type](op, inputs, out, first, count);
}

}  // namespace fake_nccl
