// train/check/model_check.h: checks a model's callbacks against the contract of gsel/model.h, layer by layer. The
// inputs of each layer are what the layers before it have written. Does not know ranks, strategies and who asked.
#pragma once

#include "train/check/layer_check.h"
#include "train/execute/push.h"

namespace gsel::check {

// The model is finished. options: as read, whole. GSEL_ERR_CALLBACK when a callback, an initialiser or the data fails.
Findings check_model(const Model& model, const gsel_model_check_options& options);

}  // namespace gsel::check
