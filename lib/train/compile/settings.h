// train/compile/settings.h: what keys of [train] mean for a model. Does not know programs.
#pragma once

#include <cstdint>

#include "base/config.h"
#include "model/model.h"

namespace gsel {

// How a parameter is kept: as train.precision says where its callbacks get f32, else as they get it.
gsel_dtype kept_dtype(const Param& param, const Config& config);

enum class NonFinite : uint8_t { off, skip, error };  // train.non_finite

// GSEL_ERR_CONFIG where a dynamic loss scale needs to know of overflows and the key says "off".
NonFinite non_finite_of(const Config& config);
// Whether the step looks for overflow by itself: a norm of all gradients shows it, too.
bool looks_for_overflow(const Config& config, const Model& model);

}  // namespace gsel
