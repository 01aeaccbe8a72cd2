// checkpoint/weights.h: parameters from files that gsel has not written, and to such files: [[weights.map]] says which
// tensor is which parameter. Collectives; errors as gsel/weights.h says.
#pragma once

#include <gsel/weights.h>

#include <string>

#include "base/config.h"
#include "checkpoint/disk.h"
#include "checkpoint/weights_plan.h"
#include "train/trainer.h"

namespace gsel::checkpoint {

// map: nullptr for the trainer's configuration.
gsel_weights_report load_weights(Trainer& trainer, const std::string& path, const Config* map,
                                 Disk& disk = real_disk());
gsel_weights_report export_weights(Trainer& trainer, const std::string& path, const Config* map, gsel_dtype dtype,
                                   Disk& disk = real_disk());

// What both begin with, after the trainer's begin_params: compares rules and prefix of all ranks, and applies them.
WeightPlan agreed_plan(Trainer& trainer, const StateDict& state, const Config& map);
void check_weights_path(const std::string& path);

}  // namespace gsel::checkpoint
