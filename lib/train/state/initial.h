// train/state/initial.h: initial values of parameters, keyed by (seed, name, element), so that any rank can make any
// part of a parameter. Does not know where they are kept.
#pragma once

#include <span>

#include "model/model.h"

namespace gsel {

// values: this rank's elements of a parameter, from `first` on. GSEL_ERR_CALLBACK when an embedder's initialiser fails.
void make_initial(const Param& param, int64_t first, std::span<float> values, uint64_t seed);

}  // namespace gsel
