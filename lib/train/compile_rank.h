// train/compile_rank.h: compiles a rank's program for a trainer with a given optimizer. Needs no communicator, so
// programs of ranks that do not run can be compiled too.
#pragma once

#include "train/compile/pass.h"
#include "train/optimize/optimizer.h"

namespace gsel {

// optimizer: made from the compiler's configuration and model. GSEL_ERR_UNSUPPORTED if it needs whole parameters and
// the sharing axis divides them; other errors as Compiler::compile.
Compiled compile_rank(const Compiler& compiler, int32_t rank, const Optimizer& optimizer);

}  // namespace gsel
