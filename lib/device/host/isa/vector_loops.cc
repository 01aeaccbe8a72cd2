// device/host/isa/vector_loops.cc: which instruction sets this processor has.
#include "device/host/isa/vector_loops.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace gsel::host {

#if defined(__x86_64__)
namespace {

bool has_f16c() {  // Clang's __builtin_cpu_supports does not have f16c
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

}  // namespace
#endif

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

const Isa kBestIsa = [] {
  Isa last = Isa::baseline;
  for (const Isa isa : kIsas)
    if (has_isa(isa)) last = isa;
  return last;
}();

}  // namespace gsel::host
