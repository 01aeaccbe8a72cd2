// program/forward_to.h: the program of an inference, made from a training program: the forward of some samples up to
// one value, through the layers that the value depends on, each on its pipeline rank. The output of a layer is sent at
// once to the pipeline ranks that read it. A pure function; does not know what the value is wanted for.
#pragma once

#include "program/program.h"

namespace gsel {

// Layers that have to run for a value, in order.
std::vector<int32_t> layers_up_to(const Program& program, int32_t value);

// Pipeline rank on which the value is written; the first one of an input.
int32_t pipeline_rank_of_value(const Program& program, int32_t value);

// This rank's part of it: one micro-batch, of samples from 0 on. Parameters that a rank does not keep whole are
// gathered where they are read, and released behind their last layer.
Program forward_to(const Program& training, int32_t value, int64_t n_samples);

}  // namespace gsel
