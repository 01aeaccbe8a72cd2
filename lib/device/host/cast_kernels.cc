// device/host/cast_kernels.cc: see kernels.h. The loops are in cast_loops.inc, compiled once per instruction set.
#include "device/formulas/floats.h"
#include "device/host/isa/vector_loops.h"
#include "device/host/kernels.h"

namespace gsel::host {
namespace {

#define GSEL_LOOPS "device/host/cast_loops.inc"
#include "device/host/isa/each_isa.inc"

}  // namespace

template <class T>
void widen(Isa isa, float* dst, const T* src, uint64_t count) {
  GSEL_DISPATCH(isa, widen_all<T>)(dst, src, count);
}

template <class T>
void narrow(Isa isa, T* dst, const float* src, uint64_t count) {
  GSEL_DISPATCH(isa, narrow_all<T>)(dst, src, count);
}

template void widen(Isa, float*, const F16*, uint64_t);
template void widen(Isa, float*, const BF16*, uint64_t);
template void narrow(Isa, F16*, const float*, uint64_t);
template void narrow(Isa, BF16*, const float*, uint64_t);

}  // namespace gsel::host
