// train/compile/layer_seconds.h: the times of layers, read from recorded steps (docs/step.md). Does not know who asks.
#pragma once

#include <string>
#include <vector>

#include "program/program.h"

namespace gsel {

// Of one micro-batch. A backward in one piece counts as the half for inputs.
struct LayerSeconds {
  double forward = 0, backward_input = 0, backward_weight = 0;
};

// By layer of the program's model: the median over all that was recorded. path: a file, or a folder of files
// step-RANK.json. GSEL_ERR_IO, GSEL_ERR_PARSE; GSEL_ERR_CONFIG naming a layer that is missing.
std::vector<LayerSeconds> measured_layers(const Program& program, const std::string& path);

}  // namespace gsel
