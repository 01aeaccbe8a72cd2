// comm/host/cast_kernels.cc: see cast_kernels.h. The loops stand in cast_loops.inc, once per instruction set.
#include "comm/host/cast_kernels.h"

#include "comm/vector_loops.h"

namespace gsel::host {
namespace {

namespace baseline {
#include "comm/host/cast_loops.inc"
}
#if defined(__x86_64__)
GSEL_FOR_ISA(GSEL_AVX2)
namespace avx2 {
#include "comm/host/cast_loops.inc"
}
GSEL_FOR_ISA_END
GSEL_FOR_ISA(GSEL_AVX512)
namespace avx512 {
#include "comm/host/cast_loops.inc"
}
GSEL_FOR_ISA_END
#endif

}  // namespace

template <class T>
void widen(shm::Isa isa, float* dst, const T* src, uint64_t count) {
#if defined(__x86_64__)
  if (isa == shm::Isa::avx512) return avx512::widen_all(dst, src, count);
  if (isa == shm::Isa::avx2) return avx2::widen_all(dst, src, count);
#endif
  baseline::widen_all(dst, src, count);
}

template <class T>
void narrow(shm::Isa isa, T* dst, const float* src, uint64_t count) {
#if defined(__x86_64__)
  if (isa == shm::Isa::avx512) return avx512::narrow_all(dst, src, count);
  if (isa == shm::Isa::avx2) return avx2::narrow_all(dst, src, count);
#endif
  baseline::narrow_all(dst, src, count);
}

template void widen(shm::Isa, float*, const F16*, uint64_t);
template void widen(shm::Isa, float*, const BF16*, uint64_t);
template void narrow(shm::Isa, F16*, const float*, uint64_t);
template void narrow(shm::Isa, BF16*, const float*, uint64_t);

}  // namespace gsel::host
