// device/host/optimizer_kernels.cc: see optimizer_kernels.h. The loops are in optimizer_loops.inc, compiled once per
// instruction set.
#include "device/host/optimizer_kernels.h"

#include "device/formulas/floats.h"
#include "device/formulas/optimizer_rules.h"
#include "device/host/isa/vector_loops.h"

namespace gsel::host {
namespace {

#define GSEL_LOOPS "device/host/optimizer_loops.inc"
#include "device/host/isa/each_isa.inc"

}  // namespace

void elementwise_step(Isa isa, const gsel_optimizer_step& step) {
  GSEL_DISPATCH(isa, step_kind)(step);
}

}  // namespace gsel::host
