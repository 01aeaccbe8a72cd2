// program/verify/post_validation.h: checks optimistic steps (program/optimistic.h). A step that is begun again repeats
// what stands before POST_VALIDATE. No message may cross validation: stand before it on one rank and after it on the
// other. The same holds for the calls of a group.
#pragma once

#include "program/job.h"

namespace gsel {

// The rules of docs/program.md about it, of programs that follow all others. GSEL_ERR_PROGRAM.
void check_post_validations(const Job& job);

}  // namespace gsel
