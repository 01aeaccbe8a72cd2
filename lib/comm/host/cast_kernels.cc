// comm/host/cast_kernels.cc: see cast_kernels.h. The loops stand in cast_loops.inc, once per instruction set.
#include "comm/host/cast_kernels.h"

#include "comm/vector_loops.h"

namespace gsel::host {
namespace {

#define GSEL_LOOPS "comm/host/cast_loops.inc"
#include "comm/each_isa.inc"

}  // namespace

template <class T>
void widen(shm::Isa isa, float* dst, const T* src, uint64_t count) {
  GSEL_DISPATCH(isa, widen_all<T>)(dst, src, count);
}

template <class T>
void narrow(shm::Isa isa, T* dst, const float* src, uint64_t count) {
  GSEL_DISPATCH(isa, narrow_all<T>)(dst, src, count);
}

template void widen(shm::Isa, float*, const F16*, uint64_t);
template void widen(shm::Isa, float*, const BF16*, uint64_t);
template void narrow(shm::Isa, F16*, const float*, uint64_t);
template void narrow(shm::Isa, BF16*, const float*, uint64_t);

}  // namespace gsel::host
