// train/state/initial.h: initial values of parameters, keyed by (seed, name, element), so that any rank can make any
// part of any parameter. Does not know where they are kept.
#pragma once

#include <span>

#include "model/model.h"

namespace gsel {

// Elements from `first` on of what is here of a parameter. GSEL_ERR_CALLBACK when an initialiser of the embedder fails.
void make_initial(const Param& param, int64_t first, std::span<float> values, uint64_t seed);

}  // namespace gsel
