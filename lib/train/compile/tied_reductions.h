// train/compile/tied_reductions.h: inserts two kinds of gradient sums: over the sharing axis, for whole parameters of
// layers whose values are sharded; over the pipeline, for parameters that several pipeline ranks hold. Strategies do
// not insert them, since these parameters are known only after all passes.
#pragma once

#include "program/program.h"

namespace gsel {

// For each bucket that is stepped here and needs it: an ALLREDUCE_PARTIAL, then an ALLREDUCE_TIED, in the same order on
// all their ranks, after the reductions over the data axis and before any instruction that reads the gradients. WAITs
// that come later are moved before them.
void insert_tied_reductions(Program& program);

}  // namespace gsel
