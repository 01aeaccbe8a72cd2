// device/formulas/reduce_rules.h: the operations of a reduction (gsel/types.h) on one element. An element is folded as
// a Partial of its type, in the order of the inputs; then Keep or Divide ends it, and small types are rounded. Does not
// know buffers and loops.
#pragma once

#include <gsel/types.h>

#include <cstdint>
#include <type_traits>

#include "device/formulas/floats.h"

namespace gsel::reduction {

// The type of an element during a fold.
template <class T>
using Partial = std::conditional_t<std::is_arithmetic_v<T>, T, float>;

// The bit pattern of a NaN depends on the processor and the order of operands, so all become the same one.
template <class T>
GSEL_INLINE T one_nan(T x) {
  if constexpr (std::is_same_v<T, float>)
    return x == x ? x : __builtin_nanf("");
  else if constexpr (std::is_same_v<T, double>)
    return x == x ? x : __builtin_nan("");
  else
    return x;
}

// Integer arithmetic without undefined overflow: in an unsigned type at least as wide as int.
template <class T>
struct Wide {
  using type = std::conditional_t<(sizeof(T) < sizeof(uint32_t)), uint32_t, std::make_unsigned_t<T>>;
};
template <class T>
requires std::is_floating_point_v<T>
struct Wide<T> {
  using type = T;
};
template <class T>
using wide = typename Wide<T>::type;

// kRounds: floating-point results are rounded, so order matters.
struct Sum {
  static constexpr bool kRounds = true;
  template <class T>
  GSEL_INLINE static T apply(T a, T b) {
    return static_cast<T>(static_cast<wide<T>>(a) + static_cast<wide<T>>(b));
  }
};
struct Prod {
  static constexpr bool kRounds = true;
  template <class T>
  GSEL_INLINE static T apply(T a, T b) {
    return static_cast<T>(static_cast<wide<T>>(a) * static_cast<wide<T>>(b));
  }
};
// Of equal numbers, such as zeros of either sign, the first stays; a NaN wins. Bitwise operators avoid branches.
struct Min {
  static constexpr bool kRounds = false;
  template <class T>
  GSEL_INLINE static T apply(T a, T b) {
    return ((b < a) | (b != b)) ? b : a;
  }
};
struct Max {
  static constexpr bool kRounds = false;
  template <class T>
  GSEL_INLINE static T apply(T a, T b) {
    return ((a < b) | (b != b)) ? b : a;
  }
};
struct And {
  static constexpr bool kRounds = false;
  template <class T>
  GSEL_INLINE static T apply(T a, T b) {
    return static_cast<T>(a & b);
  }
};
struct Or {
  static constexpr bool kRounds = false;
  template <class T>
  GSEL_INLINE static T apply(T a, T b) {
    return static_cast<T>(a | b);
  }
};
struct Xor {
  static constexpr bool kRounds = false;
  template <class T>
  GSEL_INLINE static T apply(T a, T b) {
    return static_cast<T>(a ^ b);
  }
};

// The operation on a folded element before it is stored.
struct Keep {
  template <class T>
  GSEL_INLINE static T apply(T x, int) {
    return x;
  }
};
struct Divide {
  template <class T>
  GSEL_INLINE static T apply(T x, int n) {
    if constexpr (std::is_floating_point_v<T>)
      return x / static_cast<T>(n);
    else if constexpr (std::is_signed_v<T>)
      return static_cast<T>(static_cast<int64_t>(x) / n);
    else
      return static_cast<T>(static_cast<uint64_t>(x) / static_cast<uint64_t>(n));
  }
};

// The equivalent operation on bytes that are 0 or 1.
constexpr gsel_op op_of_bits(gsel_op op) {
  if (op == GSEL_SUM || op == GSEL_MAX) return GSEL_BOR;
  if (op == GSEL_PROD || op == GSEL_MIN) return GSEL_BAND;
  return op;
}

}  // namespace gsel::reduction
