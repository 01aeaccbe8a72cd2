// device/host/isa/vector_loops.h: compiles loops for several instruction sets. Loops are in an .inc file, which
// each_isa.inc includes once per set, each in its own namespace between GSEL_FOR_ISA and GSEL_FOR_ISA_END. best_isa()
// selects one at run time. All sets give the same bits if elements are independent: only IEEE 754 operations are used,
// and products are not contracted into fused additions. Does not know the loops.
//
// Why not Highway: Debian 12's version 1.0.3 sums f32 in 0.92 to 1.01 of the time of these loops (256 elements to 64
// MiB, one core of a Xeon with AVX-512). But it truncates f32 to bf16 where gsel rounds to nearest even, and it has no
// 8-bit floats, so the conversions would remain; and its headers add 1.2 s of compile time per loop.
#pragma once

#define GSEL_ONCE [[gnu::noinline]]  // unrolled vector code is long and shared by many callers
#define GSEL_PRAGMA(...) _Pragma(#__VA_ARGS__)
#define GSEL_AVX2 "avx2,f16c"
#if defined(__clang__)
#define GSEL_AVX512 "avx2,f16c,avx512f,avx512bw,avx512dq,avx512vl"
#define GSEL_INDEPENDENT GSEL_PRAGMA(clang loop vectorize(assume_safety))
#define GSEL_FOR_ISA(set) GSEL_PRAGMA(clang attribute push(__attribute__((target(set))), apply_to = function))
#define GSEL_FOR_ISA_END GSEL_PRAGMA(clang attribute pop)
#else
#define GSEL_AVX512 "avx2,f16c,avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512"  // else GCC uses 256 bits
#define GSEL_INDEPENDENT GSEL_PRAGMA(GCC ivdep)
#define GSEL_FOR_ISA(set) GSEL_PRAGMA(GCC push_options) GSEL_PRAGMA(GCC target(set))
#define GSEL_FOR_ISA_END GSEL_PRAGMA(GCC pop_options)
#endif
// Calls the function of one instruction set: GSEL_DISPATCH(isa, reduce)(work).
#if defined(__x86_64__)
#define GSEL_DISPATCH(isa, function)                     \
  ((isa) == ::gsel::host::Isa::avx512 ? avx512::function \
   : (isa) == ::gsel::host::Isa::avx2 ? avx2::function   \
                                      : baseline::function)
#else
#define GSEL_DISPATCH(isa, function) (baseline::function)
#endif

namespace gsel::host {

enum class Isa { baseline, avx2, avx512 };
constexpr Isa kIsas[] = {Isa::baseline, Isa::avx2, Isa::avx512};
bool has_isa(Isa isa);
extern const Isa kBestIsa;  // set when the library is loaded
// The last one that this processor has.
inline Isa best_isa() {
  return kBestIsa;
}

}  // namespace gsel::host
