// comm/shm/kernels.cc: see kernels.h. What is done to one element stands here once; the loops around it stand in
// kernels_loops.inc and are compiled once per instruction set, by the compiler's own vectoriser.
#include "comm/shm/kernels.h"

#include <cstdint>
#include <cstring>
#include <type_traits>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

#include "base/dtype.h"
#include "comm/floats.h"

namespace gsel::shm {
namespace {

constexpr size_t kTileBytes = 4096;

// Which of its bit patterns a NaN has depends on the processor and on the order of operands; one is as good.
template <class T>
GSEL_INLINE T one_nan(T x) {
  if constexpr (std::is_same_v<T, float>)
    return x == x ? x : __builtin_nanf("");
  else if constexpr (std::is_same_v<T, double>)
    return x == x ? x : __builtin_nan("");
  else
    return x;
}

// Integer arithmetic without overflow: in an unsigned type no narrower than int.
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

struct Sum {
  template <class T>
  GSEL_INLINE static T apply(T a, T b) {
    return static_cast<T>(static_cast<wide<T>>(a) + static_cast<wide<T>>(b));
  }
};
struct Prod {
  template <class T>
  GSEL_INLINE static T apply(T a, T b) {
    return static_cast<T>(static_cast<wide<T>>(a) * static_cast<wide<T>>(b));
  }
};
// Of equal numbers, such as zeros of either sign, the first stays; a NaN wins. Without short cuts, which are branches.
struct Min {
  template <class T>
  GSEL_INLINE static T apply(T a, T b) {
    return ((b < a) | (b != b)) ? b : a;
  }
};
struct Max {
  template <class T>
  GSEL_INLINE static T apply(T a, T b) {
    return ((a < b) | (b != b)) ? b : a;
  }
};
struct And {
  GSEL_INLINE static uint8_t apply(uint8_t a, uint8_t b) { return a & b; }
};
struct Or {
  GSEL_INLINE static uint8_t apply(uint8_t a, uint8_t b) { return a | b; }
};
struct Xor {
  GSEL_INLINE static uint8_t apply(uint8_t a, uint8_t b) { return a ^ b; }
};

// What is done to a folded element before it is put back.
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

#define GSEL_ONCE [[gnu::noinline]]  // unrolled vector code is long and shared by many callers
#define GSEL_PRAGMA(...) _Pragma(#__VA_ARGS__)
#if defined(__clang__)
#define GSEL_INDEPENDENT GSEL_PRAGMA(clang loop vectorize(assume_safety))
#define GSEL_FOR_ISA(set) GSEL_PRAGMA(clang attribute push(__attribute__((target(set))), apply_to = function))
#define GSEL_FOR_ISA_END GSEL_PRAGMA(clang attribute pop)
#else
#define GSEL_INDEPENDENT GSEL_PRAGMA(GCC ivdep)
#define GSEL_FOR_ISA(set) GSEL_PRAGMA(GCC push_options) GSEL_PRAGMA(GCC target(set))
#define GSEL_FOR_ISA_END GSEL_PRAGMA(GCC pop_options)
#endif

namespace baseline {
#include "comm/shm/kernels_loops.inc"
}

#if defined(__x86_64__)
#define GSEL_F16C
GSEL_FOR_ISA("avx2,f16c")
namespace avx2 {
#include "comm/shm/kernels_loops.inc"
}
GSEL_FOR_ISA_END
#if defined(__clang__)
GSEL_FOR_ISA("avx2,f16c,avx512f,avx512bw,avx512dq,avx512vl")
#else
GSEL_FOR_ISA("avx2,f16c,avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512")  // GCC halves them otherwise
#endif
namespace avx512 {
#include "comm/shm/kernels_loops.inc"
}
GSEL_FOR_ISA_END

bool has_f16c() {  // Clang's __builtin_cpu_supports does not know it
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}
#endif

using Reduce = void (*)(gsel_dtype, gsel_op, void*, const void* const*, int, size_t);

Reduce loops_for(Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::avx512) return avx512::reduce;
  if (isa == Isa::avx2) return avx2::reduce;
#endif
  return baseline::reduce;
}

Isa best_isa() {
  Isa best = Isa::baseline;
  for (const Isa isa : kIsas)
    if (has_isa(isa)) best = isa;
  return best;
}

}  // namespace

bool has_isa(Isa isa) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && has_f16c();
  if (isa == Isa::avx2) return avx2;
  if (isa == Isa::avx512)
    return avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
#endif
  return isa == Isa::baseline;
}

void reduce_with(Isa isa, const Fold& fold, void* out, const void* const* in, int n, size_t count) {
  if (count == 0) return;
  if (n == 1)
    std::memmove(out, in[0], count * dtype_bytes(fold.dtype));
  else
    loops_for(isa)(fold.dtype, fold.op, out, in, n, count);
}

void reduce(const Fold& fold, void* out, const void* const* in, int n, size_t count) {
  static const Isa best = best_isa();
  reduce_with(best, fold, out, in, n, count);
}

}  // namespace gsel::shm
