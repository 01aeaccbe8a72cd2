// checkpoint/checkpoint.h: saves and loads a trainer. Collectives; errors as gsel/checkpoint.h says.
#pragma once

#include <gsel/checkpoint.h>

#include <string>

#include "checkpoint/disk.h"
#include "train/trainer.h"

namespace gsel::checkpoint {

gsel_checkpoint_report save(Trainer& trainer, const std::string& folder, Disk& disk = real_disk());
gsel_checkpoint_report load(Trainer& trainer, const std::string& path, Disk& disk = real_disk());

}  // namespace gsel::checkpoint
