// train/compile/place_post_validation.h: moves POST_VALIDATE to where it belongs in each program of a job.
#pragma once

#include <span>

#include "program/program.h"

namespace gsel {

// Of the programs of a job, in ascending ranks. Validation runs at the last point that no message crosses, so that the
// number has had time to come. A value that skips stages is sent after validation instead: its reader runs later.
void place_post_validations(std::span<Program> programs);

}  // namespace gsel
