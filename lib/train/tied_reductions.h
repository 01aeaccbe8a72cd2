// train/tied_reductions.h: the sums over the pipeline of gradients of parameters that several places hold. Strategies
// do not write them: which parameters are tied is seen once all of them have had their pass.
#pragma once

#include "program/program.h"

namespace gsel {

// A REDUCE_TIED for each tied bucket that is stepped here, in an order that all holders have, behind the reductions
// over the data axis and before what looks at the gradients. WAITs that stand later are moved before them.
void insert_tied_reductions(Program& program);

}  // namespace gsel
