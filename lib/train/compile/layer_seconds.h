// train/compile/layer_seconds.h: the times of layers, read from recorded steps (docs/step.md).
#pragma once

#include <string>
#include <vector>

#include "program/program.h"

namespace gsel {

// Per micro-batch. An undivided backward counts as backward_input.
struct LayerSeconds {
  double forward = 0, backward_input = 0, backward_weight = 0;
};

// By layer of the program's model: the median of all recorded times. path: a file, or a folder of files step-RANK.json.
// GSEL_ERR_IO, GSEL_ERR_PARSE; GSEL_ERR_CONFIG naming a layer that has no times.
std::vector<LayerSeconds> measured_layers(const Program& program, const std::string& path);

}  // namespace gsel
