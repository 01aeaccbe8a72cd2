// program/forward_only.h: the program of an evaluation, made from a training program: only its inputs, its forwards and
// the loss are left. Gathers that no forward reads are left out; windows (memory of a bucket that is whole for a while)
// are released behind the last forward that reads them. There is no setup. If the training program passes the verifier,
// this one passes it for Purpose::evaluation.
#pragma once

#include "program/program.h"

namespace gsel {

Program forward_only(const Program& program);

}  // namespace gsel
