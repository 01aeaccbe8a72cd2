// comm/shm/kernels.cc: see kernels.h. Inputs are folded tile by tile, so that partial results stay in the first-level
// cache; element by element, so that neither tiles nor vectors change a result.
#include "comm/shm/kernels.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace gsel::shm {
namespace {

// Integer arithmetic without overflow: in an unsigned type no narrower than int.
template <class T>
struct Wide {
  using type = std::conditional_t<(sizeof(T) < sizeof(uint32_t)), uint32_t, std::make_unsigned_t<T>>;
};
template <>
struct Wide<float> {
  using type = float;
};
template <>
struct Wide<double> {
  using type = double;
};
template <class T>
using wide = typename Wide<T>::type;

struct Sum {
  template <class T>
  static T apply(T a, T b) {
    return static_cast<T>(static_cast<wide<T>>(a) + static_cast<wide<T>>(b));
  }
};
struct Prod {
  template <class T>
  static T apply(T a, T b) {
    return static_cast<T>(static_cast<wide<T>>(a) * static_cast<wide<T>>(b));
  }
};
struct Min {
  template <class T>
  static T apply(T a, T b) {
    return b < a ? b : a;
  }
};
struct Max {
  template <class T>
  static T apply(T a, T b) {
    return a < b ? b : a;
  }
};

constexpr size_t kTileBytes = 4096;

template <class Op, class T>
void combine(T* out, const T* a, const T* b, size_t count) {
  for (size_t i = 0; i < count; ++i) out[i] = Op::apply(a[i], b[i]);
}

template <class Op, class T>
void fold(T* out, const void* const* in, int n, size_t count) {
  constexpr size_t kTile = kTileBytes / sizeof(T);
  const auto input = [&](int q, size_t begin) { return static_cast<const T*>(in[q]) + begin; };
  if (n == 1) {
    std::memmove(out, in[0], count * sizeof(T));
    return;
  }
  if (n == 2) return combine<Op>(out, input(0, 0), input(1, 0), count);
  alignas(64) T partial[kTile];  // apart from out, which may be an input that is still to be read
  for (size_t begin = 0; begin < count; begin += kTile) {
    const size_t some = std::min(kTile, count - begin);
    combine<Op>(partial, input(0, begin), input(1, begin), some);
    for (int q = 2; q < n - 1; ++q) combine<Op>(partial, partial, input(q, begin), some);
    combine<Op>(out + begin, partial, input(n - 1, begin), some);
  }
}

template <class T>
void divide(T* out, int n, size_t count) {
  if constexpr (std::is_integral_v<T>) {
    for (size_t i = 0; i < count; ++i)
      out[i] = static_cast<T>(static_cast<std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>>(out[i]) / n);
  } else {
    for (size_t i = 0; i < count; ++i) out[i] /= static_cast<T>(n);
  }
}

template <class T>
void reduce_typed(gsel_op op, void* to, const void* const* in, int n, size_t count) {
  T* out = static_cast<T*>(to);
  switch (op) {
    case GSEL_SUM:
      return fold<Sum>(out, in, n, count);
    case GSEL_PROD:
      return fold<Prod>(out, in, n, count);
    case GSEL_MIN:
      return fold<Min>(out, in, n, count);
    case GSEL_MAX:
      return fold<Max>(out, in, n, count);
    default:
      fold<Sum>(out, in, n, count);
      return divide(out, n, count);
  }
}

}  // namespace

bool can_reduce(gsel_dtype dtype) {
  return (dtype >= GSEL_I8 && dtype <= GSEL_U64) || dtype == GSEL_F32 || dtype == GSEL_F64;
}

void reduce(gsel_dtype dtype, gsel_op op, void* out, const void* const* in, int n, size_t count) {
  if (count == 0) return;
  switch (dtype) {
    case GSEL_I8:
      return reduce_typed<int8_t>(op, out, in, n, count);
    case GSEL_U8:
      return reduce_typed<uint8_t>(op, out, in, n, count);
    case GSEL_I16:
      return reduce_typed<int16_t>(op, out, in, n, count);
    case GSEL_U16:
      return reduce_typed<uint16_t>(op, out, in, n, count);
    case GSEL_I32:
      return reduce_typed<int32_t>(op, out, in, n, count);
    case GSEL_U32:
      return reduce_typed<uint32_t>(op, out, in, n, count);
    case GSEL_I64:
      return reduce_typed<int64_t>(op, out, in, n, count);
    case GSEL_U64:
      return reduce_typed<uint64_t>(op, out, in, n, count);
    case GSEL_F32:
      return reduce_typed<float>(op, out, in, n, count);
    case GSEL_F64:
      return reduce_typed<double>(op, out, in, n, count);
    default:
      return;
  }
}

}  // namespace gsel::shm
