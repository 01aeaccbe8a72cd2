// train/compile/tied_reductions.h: inserts two kinds of sums of gradients: over the sharing axis, those of whole
// parameters used by layers that have only parts of values; over the pipeline, those of parameters that several
// pipeline ranks hold. Strategies do not insert them, since it is known only after all passes which parameters these
// are.
#pragma once

#include "program/program.h"

namespace gsel {

// An ALLREDUCE_PARTIAL, then an ALLREDUCE_TIED, for each bucket that is stepped here and wants one, in an order that
// all who take part have, behind the reductions over the data axis and before what looks at the gradients. WAITs that
// stand later are moved before them.
void insert_tied_reductions(Program& program);

}  // namespace gsel
