// device/host/reduce/kernels.cc: see kernels.h. The operations on one element are in device/formulas; the loops are in
// kernels_loops.inc, auto-vectorised and compiled once per instruction set.
#include "device/host/reduce/kernels.h"

#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

#if defined(__x86_64__)
// GCC 12 warns about the undefined halves in its own AVX-512 functions.
#pragma GCC diagnostic push
#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>
#pragma GCC diagnostic pop
#endif

#include "base/types.h"
#include "device/formulas/floats.h"
#include "device/formulas/reduce_rules.h"
#include "device/host/isa/vector_loops.h"

namespace gsel::host {
namespace {

using reduction::Partial, reduction::one_nan, reduction::Keep, reduction::Divide;
using reduction::Sum, reduction::Prod, reduction::Min, reduction::Max, reduction::And, reduction::Or, reduction::Xor;

constexpr size_t kTileBytes = 4096;

// A reduction's arguments for the loops. With more than three inputs a tree differs from the order of inputs.
struct FoldArguments {
  const Fold& fold;
  void* out;
  const void* const* in;
  int n;
  size_t first, count;  // elements of the inputs; results go to the start of out

  bool scaled() const { return fold.op == GSEL_SCALED_SUM; }
  bool tree() const { return fold.order == GSEL_ORDER_TREE && n > 3; }
  int divisor() const { return fold.averaged > 0 ? fold.averaged : n; }
  template <class T>
  GSEL_INLINE const T* input(int q) const {
    return static_cast<const T*>(in[q]) + first;
  }
  template <class T>
  GSEL_INLINE T* output() const {
    return static_cast<T*>(out);
  }
};

namespace baseline {
#include "device/host/reduce/kernels_loops.inc"
}

#if defined(__x86_64__)
#define GSEL_BLOCKS
// The functions of an instruction set that kernels_blocks.inc needs and that differ only in their prefix.
#define GSEL_BINARY(name, intrinsic)             \
  GSEL_INLINE static Bits name(Bits a, Bits b) { \
    return intrinsic(a, b);                      \
  }
#define GSEL_SET_COMMON(prefix)                       \
  GSEL_BINARY(unpack_low8, prefix##_unpacklo_epi8)    \
  GSEL_BINARY(unpack_high8, prefix##_unpackhi_epi8)   \
  GSEL_BINARY(unpack_low16, prefix##_unpacklo_epi16)  \
  GSEL_BINARY(unpack_high16, prefix##_unpackhi_epi16) \
  GSEL_BINARY(pack32, prefix##_packus_epi32)          \
  GSEL_BINARY(pack16, prefix##_packus_epi16)          \
  GSEL_BINARY(pack32_signed, prefix##_packs_epi32)    \
  GSEL_BINARY(pack16_signed, prefix##_packs_epi16)    \
  GSEL_BINARY(min32, prefix##_min_epu32)              \
  GSEL_BINARY(max32, prefix##_max_epu32)

GSEL_FOR_ISA(GSEL_AVX2)
namespace avx2 {
struct Set {
  using Bits = __m256i;
  using F32 = __m256;
  GSEL_SET_COMMON(_mm256)
  GSEL_INLINE static void widen_f16(F32& low, F32& high, Bits x) {
    low = _mm256_cvtph_ps(_mm256_castsi256_si128(x));
    high = _mm256_cvtph_ps(_mm256_extracti128_si256(x, 1));
  }
  GSEL_INLINE static Bits narrow_f16(F32 low, F32 high) {
    return _mm256_set_m128i(_mm256_cvtps_ph(high, _MM_FROUND_TO_NEAREST_INT),
                            _mm256_cvtps_ph(low, _MM_FROUND_TO_NEAREST_INT));
  }
  // After both packs: restores the order that they and widen_f16 have changed.
  GSEL_INLINE static Bits in_order(Bits x) {
    return _mm256_permutevar8x32_epi32(x, _mm256_setr_epi32(0, 4, 2, 6, 1, 5, 3, 7));
  }
};
#include "device/host/reduce/kernels_blocks.inc"
#include "device/host/reduce/kernels_loops.inc"
}  // namespace avx2
GSEL_FOR_ISA_END
GSEL_FOR_ISA(GSEL_AVX512)
namespace avx512 {
struct Set {
  using Bits = __m512i;
  using F32 = __m512;
  GSEL_SET_COMMON(_mm512)
  GSEL_INLINE static void widen_f16(F32& low, F32& high, Bits x) {
    low = _mm512_cvtph_ps(_mm512_castsi512_si256(x));
    high = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(x, 1));
  }
  GSEL_INLINE static Bits narrow_f16(F32 low, F32 high) {
    return _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtps_ph(low, _MM_FROUND_TO_NEAREST_INT)),
                              _mm512_cvtps_ph(high, _MM_FROUND_TO_NEAREST_INT), 1);
  }
  GSEL_INLINE static Bits in_order(Bits x) {
    return _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 4, 2, 6, 8, 12, 10, 14, 1, 5, 3, 7, 9, 13, 11, 15), x);
  }
};
#include "device/host/reduce/kernels_blocks.inc"
#include "device/host/reduce/kernels_loops.inc"
}  // namespace avx512
GSEL_FOR_ISA_END
#endif

void copy(const Fold& fold, void* out, const void* in, size_t count, size_t first) {
  const size_t element = dtype_bytes(fold.dtype);
  std::memmove(out, static_cast<const char*>(in) + first * element, count * element);
}

Fold fold_of_bits(const Fold& fold) {
  Fold bits = fold;
  bits.dtype = GSEL_U8;
  bits.op = reduction::op_of_bits(fold.op);
  return bits;
}

}  // namespace

void reduce_with(Isa isa, const Fold& fold, void* out, const void* const* in, int n, size_t count, size_t first) {
  if (count == 0) return;
  if (n == 1 && fold.op != GSEL_SCALED_SUM && !fold.before && !fold.partial)
    copy(fold, out, in[0], count, first);
  else if (fold.op == GSEL_OP_USER)
    fold_by_user(fold, out, in, n, count, first);
  else if (fold.dtype == GSEL_BOOL)
    reduce_with(isa, fold_of_bits(fold), out, in, n, count, first);
  else
    GSEL_DISPATCH(isa, reduce)({fold, out, in, n, first, count});
}

void reduce(const Fold& fold, void* out, const void* const* in, int n, size_t count, size_t first) {
  reduce_with(best_isa(), fold, out, in, n, count, first);
}

}  // namespace gsel::host
