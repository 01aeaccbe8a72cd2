// device/host/optimizer_kernels.cc: see kernels.h. The loops are in optimizer_loops.inc and, for 8-bit
// moments, in byte_state_loops.inc, compiled once per instruction set.
#include <cmath>

#include "device/formulas/byte_state.h"
#include "device/formulas/floats.h"
#include "device/formulas/optimizer_rules.h"
#include "device/host/isa/vector_loops.h"
#include "device/host/kernels.h"

namespace gsel::host {
namespace {

constexpr CodeValues kSignedValues = code_values<Signed, true>();
constexpr CodeValues kUnsignedValues = code_values<Unsigned, false>();

#define GSEL_LOOPS "device/host/optimizer_loops.inc"
#include "device/host/isa/each_isa.inc"
#define GSEL_LOOPS "device/host/byte_state_loops.inc"
#include "device/host/isa/each_isa.inc"

}  // namespace

void elementwise_step(Isa isa, const gsel_optimizer_step& step) {
  GSEL_DISPATCH(isa, step_kind)(step);
}

void byte_state_step(Isa isa, const gsel_optimizer_step& step) {
  GSEL_DISPATCH(isa, step_blocks)(step);
}

}  // namespace gsel::host
