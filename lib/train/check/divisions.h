// train/check/divisions.h: how ranks of a sharing axis share a model: by what it declares, and by positions.
#pragma once

#include "train/check/layer_check.h"

namespace gsel::check {

// Those that the model has anything for. What cannot be divided is noted.
std::vector<Divided> divisions_of(const Model& model, int32_t ranks, Findings& findings);

}  // namespace gsel::check
