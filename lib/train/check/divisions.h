// train/check/divisions.h: the ways in which ranks of the sharing axis (tensor or context) can divide a model: as the
// model declares it, and by positions.
#pragma once

#include "train/check/layer_check.h"

namespace gsel::check {

// Those that the model has anything for. What cannot be divided is noted.
std::vector<Divided> divisions_of(const Model& model, int32_t ranks, Findings& findings);

}  // namespace gsel::check
