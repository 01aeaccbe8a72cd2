// program/forward_programs.h: forward-only programs made from a training program, for an evaluation, and for an
// inference up to one value. They have no setup. Pure functions.
#pragma once

#include "program/program.h"

namespace gsel {

// Keeps the inputs, forwards and loss of the training program, and the gathers that its forwards read. Windows (memory
// of a bucket while it is whole) are released after the last forward that reads them. If the training program passes
// the verifier, the result passes it for Purpose::evaluation.
Program forward_only(const Program& program);

// The layers that a value depends on, in order.
std::vector<int32_t> layers_up_to(const Program& program, int32_t value);

// The pipeline rank that computes the value; the first one for an input.
int32_t pipeline_rank_of_value(const Program& program, int32_t value);

// One micro-batch of samples from 0 on, forward up to one value, through the layers that it depends on. The output of a
// layer is sent immediately to the pipeline ranks that read it. Parameters that a rank does not keep whole are gathered
// before their first layer and released after the last.
Program forward_to(const Program& training, int32_t value, int64_t n_samples);

}  // namespace gsel
