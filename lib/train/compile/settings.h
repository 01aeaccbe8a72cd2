// train/compile/settings.h: what keys of [train] mean for a model. Does not know programs.
#pragma once

#include <cstdint>
#include <vector>

#include "base/config.h"
#include "model/model.h"

namespace gsel {

// The dtype a parameter is stored in: train.precision's if its callbacks use f32, else the callbacks' dtype.
gsel_dtype kept_dtype(const Param& param, const Config& config);

enum class NonFinite : uint8_t { off, skip, error };  // train.non_finite

// GSEL_ERR_CONFIG if the key is "off" but a dynamic loss scale needs to detect overflows.
NonFinite non_finite_of(const Config& config);
// Whether the step needs its own overflow check; a norm of all gradients detects overflow as well.
bool looks_for_overflow(const Config& config, const Model& model);

// train.recompute: which layers run forward again before their backward, so that their outputs need not be kept. By
// layer: the first layer to recompute before this layer's backward, -1 for none; layers from that one to this one
// run in order. Their inputs from other layers are kept, so a layer that is not recomputed limits how much lives at a
// time. GSEL_ERR_CONFIG with its place: a layer that does not exist, is not recomputable, or is the loss.
std::vector<int32_t> recomputed_before(const Model& model, const Config& config);

}  // namespace gsel
