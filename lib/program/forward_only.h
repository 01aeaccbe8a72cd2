// program/forward_only.h: the program of an evaluation: what is left of a training program when only inputs, forwards
// and the loss are wanted. Gathers that no forward reads go; windows are released behind their last forward. There is
// no setup. It passes the verifier for Purpose::evaluation where the training program passes it for training.
#pragma once

#include "program/program.h"

namespace gsel {

Program forward_only(const Program& program);

}  // namespace gsel
