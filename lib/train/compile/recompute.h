// train/compile/recompute.h: which layers run forward again before their backward (train.recompute), so that their
// outputs need not be kept. Does not know instructions.
#pragma once

#include <vector>

#include "base/config.h"
#include "model/model.h"

namespace gsel {

// By layer: the first layer to recompute before this layer's backward, -1 for none; layers from that one to this one
// run in order. Their inputs from other layers are kept, so a layer that is not recomputed limits how much lives at a
// time. GSEL_ERR_CONFIG with its place: a layer that does not exist, is not recomputable, or is the loss.
std::vector<int32_t> recomputed_before(const Model& model, const Config& config);

}  // namespace gsel
