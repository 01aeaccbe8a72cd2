// program/verify/post_validation.h: checks optimistic steps, which are made before the number of all ranks (norm,
// overflow) is known. An optimistic NORM or OVERFLOW starts an all-reduce and goes on; POST_VALIDATE in the next step
// takes the result. If the step was wrong, every rank begins the next step again. So the instructions before
// POST_VALIDATE must be complete: no message, and no call of a group, stands before the POST_VALIDATE of one rank and
// behind that of another. Source: Qi et al., "Zero Bubble Pipeline Parallelism", ICLR 2024, "post-validation"; in the
// paper the number goes along the pipeline in messages.
#pragma once

#include <span>

#include "program/job.h"

namespace gsel {

bool is_optimistic(const gsel_instr& instr);
// Whether the program steps before it knows whether it may.
bool has_optimistic_steps(const Program& program);
// Position of the step's POST_VALIDATE, or -1; of its last optimistic instruction, or -1.
int32_t post_validate_position(const Program& program);
int32_t last_optimistic(const Program& program);

// Of the programs of a job, in ascending ranks: sees to it that no message stands before one rank's POST_VALIDATE and
// behind another's. POST_VALIDATE is moved as far forward as it must be, and no further, so that what is awaited has
// had time to come. Of values that skip stages the SEND is moved behind it instead: whoever reads them comes to it
// later.
void place_post_validations(std::span<Program> programs);

// The rules of docs/program.md about it, of programs that follow all others. GSEL_ERR_PROGRAM.
void check_post_validations(const Job& job);

}  // namespace gsel
