// train/compile/tied_reductions.h: sums of gradients beside those over the data axis: over the sharing axis, of whole
// parameters that layers use which have parts of values, and over the pipeline, of those that several ranks hold.
// Strategies do not write them: which parameters these are is seen once all of them have had their pass.
#pragma once

#include "program/program.h"

namespace gsel {

// An ALLREDUCE_PARTIAL, then an ALLREDUCE_TIED, for each bucket that is stepped here and wants one, in an order that
// all who take part have, behind the reductions over the data axis and before what looks at the gradients. WAITs that
// stand later are moved before them.
void insert_tied_reductions(Program& program);

}  // namespace gsel
