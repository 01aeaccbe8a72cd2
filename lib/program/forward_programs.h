// program/forward_programs.h: programs of forwards, made from a training program: that of an evaluation, and that of an
// inference up to one value. There is no setup. Pure functions; do not know what is computed for.
#pragma once

#include "program/program.h"

namespace gsel {

// Only the inputs, forwards and loss of the training program are left. Gathers that no forward reads are left out;
// windows (memory of a bucket that is whole for a while) are released after the last forward that reads them. If the
// training program passes the verifier, this one passes it for Purpose::evaluation.
Program forward_only(const Program& program);

// Layers that have to run for a value, in order.
std::vector<int32_t> layers_up_to(const Program& program, int32_t value);

// Pipeline rank on which the value is written; the first one of an input.
int32_t pipeline_rank_of_value(const Program& program, int32_t value);

// The forward of some samples up to one value, through the layers that the value depends on, each on its pipeline rank:
// one micro-batch, of samples from 0 on. The output of a layer is sent at once to the pipeline ranks that read it.
// Parameters that a rank does not keep whole are gathered where they are read, and released after their last layer.
Program forward_to(const Program& training, int32_t value, int64_t n_samples);

}  // namespace gsel
