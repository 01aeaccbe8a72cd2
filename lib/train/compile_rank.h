// train/compile_rank.h: a rank's program as a trainer with this optimizer runs it. Does not know communicators, so that
// programs of ranks that are not there can be compiled as well.
#pragma once

#include "train/compile/pass.h"
#include "train/optimize/optimizer.h"

namespace gsel {

// optimizer: made of the compiler's configuration and model. GSEL_ERR_UNSUPPORTED where it needs whole parameters and
// the sharing axis divides them; else as Compiler::compile.
Compiled compile_rank(const Compiler& compiler, int32_t rank, const Optimizer& optimizer);

}  // namespace gsel
