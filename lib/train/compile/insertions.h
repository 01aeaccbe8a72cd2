// train/compile/insertions.h: instructions that no strategy inserts, since their place is known only after all passes,
// or from the programs of all ranks.
#pragma once

#include <span>

#include "program/program.h"

namespace gsel {

// Sums of gradients: over the sharing axis, for whole parameters of layers whose values are sharded; over the pipeline,
// for parameters that several pipeline ranks hold. For each bucket that is stepped here and needs it: an
// ALLREDUCE_PARTIAL, then an ALLREDUCE_TIED, in the same order on all their ranks, after the reductions over the data
// axis and before any instruction that reads the gradients. WAITs that come later are moved before them.
void insert_tied_reductions(Program& program);

// Places POST_VALIDATE. programs: of a job, in ascending ranks. Validation runs at the last point that no message
// crosses, to give the number time to arrive. A value that skips stages is sent after validation instead, because its
// reader runs later.
void place_post_validations(std::span<Program> programs);

}  // namespace gsel
