// train/compile/recompute.h: which layers run forward again before their backward (train.recompute), so that their
// outputs need not be kept in between. Does not know instructions.
#pragma once

#include <vector>

#include "base/config.h"
#include "model/model.h"

namespace gsel {

// By layer: the first layer of the run of recomputed layers that is to be recomputed, in order and up to this one,
// before this one's backward; -1 where nothing is. What the run reads from outside stays, so a layer that is not
// recomputed bounds what must be alive at once.
// GSEL_ERR_CONFIG with its place: a layer that is not there, is not recomputable, or is the loss.
std::vector<int32_t> recomputed_before(const Model& model, const Config& config);

}  // namespace gsel
