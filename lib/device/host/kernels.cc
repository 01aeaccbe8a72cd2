// device/host/kernels.cc: see kernels.h. Loops are written for auto-vectorisation; no sum depends on the vector width,
// and products are not contracted into fused additions.
#include "device/host/kernels.h"

#include <cmath>
#include <limits>
#include <type_traits>

#include "device/formulas/floats.h"

namespace gsel::host {
namespace {

using Half = F16;
using Brain = BF16;

// Rounds from double, so that no value is rounded twice. `fraction_bits` and `least` (exponent of the smallest normal)
// define the format; returns the bits of the magnitude.
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
      // 2^digits is exact in every floating-point type and is the first value that overflows.
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

namespace {

// Conversions between f32 and 16 bits, the common case of mixed precision; false for other pairs.
bool cast_often(void* dst, gsel_dtype dst_dtype, const void* src, gsel_dtype src_dtype, uint64_t count) {
  const Isa isa = best_isa();
  if (src_dtype == GSEL_F32 && dst_dtype == GSEL_F16)
    narrow(isa, static_cast<Half*>(dst), static_cast<const float*>(src), count);
  else if (src_dtype == GSEL_F32 && dst_dtype == GSEL_BF16)
    narrow(isa, static_cast<Brain*>(dst), static_cast<const float*>(src), count);
  else if (src_dtype == GSEL_F16 && dst_dtype == GSEL_F32)
    widen(isa, static_cast<float*>(dst), static_cast<const Half*>(src), count);
  else if (src_dtype == GSEL_BF16 && dst_dtype == GSEL_F32)
    widen(isa, static_cast<float*>(dst), static_cast<const Brain*>(src), count);
  else
    return false;
  return true;
}

}  // namespace

void cast(void* dst, gsel_dtype dst_dtype, const void* src, gsel_dtype src_dtype, uint64_t count) {
  if (cast_often(dst, dst_dtype, src, src_dtype, count)) return;
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
void scale_narrow(T* dst, double factor, uint64_t count) {
  const auto f = static_cast<float>(factor);
  for (uint64_t i = 0; i < count; ++i) dst[i] = T::narrow(dst[i].widen() * f);
}

template <class T>
void add(T* dst, const T* src, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) dst[i] += src[i];
}

namespace {

constexpr uint64_t kChunk = 4096, kLanes = 256;

double folded(double* lanes) {
  for (uint64_t half = kLanes / 2; half > 0; half /= 2)
    for (uint64_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  return lanes[0];
}

template <class T>
double squares_of_chunk(const T* src, uint64_t count) {
  double lanes[kLanes] = {};
  for (uint64_t row = 0; row < count; row += kLanes)
    for (uint64_t lane = 0, n = std::min(kLanes, count - row); lane < n; ++lane) {
      const auto x = static_cast<double>(src[row + lane]);
      lanes[lane] += x * x;
    }
  return folded(lanes);
}

// Adds sums of chunks; each level is summed in chunks again.
class ChunkSums {
 public:
  // NOLINTNEXTLINE(misc-no-recursion): a level for each power of kChunk
  void add(double sum, int level = 0) {
    Level& l = levels_[level];
    l.lanes[l.count++ % kLanes] += sum;
    if (l.count < kChunk) return;
    const double all = folded(l.lanes);
    l = {};
    add(all, level + 1);
  }
  double total() {
    for (int level = 0;; ++level) {
      Level& l = levels_[level];
      bool above = false;
      for (int i = level + 1; i < kLevels; ++i) above = above || levels_[i].count > 0;
      const double all = folded(l.lanes);
      if (!above) return all;
      if (l.count > 0) add(all, level + 1);
    }
  }

 private:
  static constexpr int kLevels = 5;  // 4096^6 elements
  struct Level {
    double lanes[kLanes] = {};
    uint64_t count = 0;
  };
  Level levels_[kLevels];
};

}  // namespace

// In the order of gsel_device_v1.sum_squares.
template <class T>
double sum_squares(const T* src, uint64_t count) {
  if (count <= kChunk) return squares_of_chunk(src, count);
  ChunkSums sums;
  for (uint64_t at = 0; at < count; at += kChunk) sums.add(squares_of_chunk(src + at, std::min(kChunk, count - at)));
  return sums.total();
}

template void scale(float*, double, uint64_t);
template void scale(double*, double, uint64_t);
template void scale_narrow(F16*, double, uint64_t);
template void scale_narrow(BF16*, double, uint64_t);
template void scale_narrow(F8E4M3*, double, uint64_t);
template void scale_narrow(F8E5M2*, double, uint64_t);
template void add(float*, const float*, uint64_t);
template void add(double*, const double*, uint64_t);
template double sum_squares(const float*, uint64_t);
template double sum_squares(const double*, uint64_t);

}  // namespace gsel::host
