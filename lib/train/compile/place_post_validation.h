// train/compile/place_post_validation.h: places POST_VALIDATE in each program of a job.
#pragma once

#include <span>

#include "program/program.h"

namespace gsel {

// programs: of a job, in ascending ranks. Validation runs at the last point that no message crosses, to give the number
// time to arrive. A value that skips stages is sent after validation instead, because its reader runs later.
void place_post_validations(std::span<Program> programs);

}  // namespace gsel
