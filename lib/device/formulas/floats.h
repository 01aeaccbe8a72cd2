// device/formulas/floats.h: floating-point types that C++ does not have, and their conversion to and from f32. A format
// is a struct of its bits with widen() (exact) and narrow() (to nearest, ties to even). narrow() maps every NaN to one
// positive quiet NaN of the format. Does not know buffers and operations. The headers of this folder are compiled into
// kernels of the host and of device plugins, so that both give the same bits.
//
// Without branches and tables, so that conversion loops vectorise, and without subnormal f32 intermediates, so that
// threads that flush these to zero get the same result.
#pragma once

#include <cstdint>
#include <cstring>

// Always inlined, and so compiled for the instruction set of the calling loop.
#if defined(__CUDACC__) || defined(__HIP__)
#define GSEL_INLINE __host__ __device__ __forceinline__
#else
#define GSEL_INLINE [[gnu::always_inline]] inline
#endif

namespace gsel {

GSEL_INLINE uint32_t bits_of(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
}

GSEL_INLINE float float_of(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

constexpr uint32_t kF32Infinity = 0x7f800000;

// Common code of the formats with a smaller exponent range than f32.
//   kLargest  bits of the largest finite number
//   kAbove    result of overflow: infinity, or NaN in a format without infinity
template <class Bits, int kFraction, int kBias, int32_t kLargest, int32_t kAbove, int32_t kNan>
struct SmallFloat {
  Bits bits;

  GSEL_INLINE float widen() const {
    const int32_t magnitude = bits & kMagnitude;
    const uint32_t placed = static_cast<uint32_t>(magnitude) << kShift;
    const uint32_t normal = placed + (static_cast<uint32_t>(127 - kBias) << 23);
    const uint32_t subnormal = bits_of(static_cast<float>(magnitude) * float_of(kStepBits));
    uint32_t wide = magnitude < (1 << kFraction) ? subnormal : normal;
    wide = magnitude > kLargest ? placed | kF32Infinity : wide;  // keeps infinity and NaN
    return float_of(wide | static_cast<uint32_t>(bits & ~kMagnitude) << (32 - kBits));
  }

  GSEL_INLINE static SmallFloat narrow(float x) {
    const uint32_t magnitude = bits_of(x) & 0x7fffffffu;
    const uint32_t half = (1u << (kShift - 1)) - 1 + ((magnitude >> kShift) & 1);
    const uint32_t normal = ((magnitude + half) >> kShift) - (static_cast<uint32_t>(127 - kBias) << kFraction);
    // The sum's last place is the format's smallest step, so the addition rounds correctly.
    const uint32_t subnormal = bits_of(float_of(magnitude) + float_of(kAlignBits)) - kAlignBits;
    const auto kept = static_cast<int32_t>(static_cast<int32_t>(magnitude) < kLeastNormal ? subnormal : normal);
    const bool above = kept > kLargest;
    const bool nan = kAbove == kNan ? above : static_cast<int32_t>(magnitude) > static_cast<int32_t>(kF32Infinity);
    const auto sign = static_cast<int32_t>(bits_of(x) >> (32 - kBits)) & ~kMagnitude;
    return {static_cast<Bits>(nan ? kNan : (above ? kAbove : kept) | sign)};
  }

 private:
  static constexpr int kBits = 8 * sizeof(Bits), kShift = 23 - kFraction;
  static constexpr int32_t kMagnitude = (1 << (kBits - 1)) - 1;
  static constexpr int32_t kLeastNormal = (128 - kBias) << 23;                                 // as f32
  static constexpr uint32_t kStepBits = static_cast<uint32_t>(128 - kBias - kFraction) << 23;  // smallest subnormal
  static constexpr uint32_t kAlignBits = kStepBits + (23u << 23);
};

using F16 = SmallFloat<uint16_t, 10, 15, 0x7bff, 0x7c00, 0x7e00>;
// OCP 8-bit floating point specification: E5M2 overflows to infinity; E4M3 has none and overflows to its NaN.
using F8E5M2 = SmallFloat<uint8_t, 2, 15, 0x7b, 0x7c, 0x7e>;
using F8E4M3 = SmallFloat<uint8_t, 3, 7, 0x7e, 0x7f, 0x7f>;

// The upper half of an f32, including subnormal numbers.
struct BF16 {
  uint16_t bits;

  GSEL_INLINE float widen() const { return float_of(static_cast<uint32_t>(bits) << 16); }

  GSEL_INLINE static BF16 narrow(float x) {
    const uint32_t wide = bits_of(x), rounded = (wide + 0x7fffu + ((wide >> 16) & 1)) >> 16;
    const bool nan = static_cast<int32_t>(wide & 0x7fffffffu) > static_cast<int32_t>(kF32Infinity);
    return {static_cast<uint16_t>(nan ? 0x7fc0 : rounded)};
  }
};

}  // namespace gsel
