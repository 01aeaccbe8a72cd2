// checkpoint/rebind.h: a trainer goes on with other ranks: from what they hold, or from a checkpoint.
#pragma once

#include <gsel/state.h>

#include <memory>
#include <string>

#include "checkpoint/disk.h"
#include "train/trainer.h"

namespace gsel::checkpoint {

struct Rebound {
  std::unique_ptr<Trainer> trainer;
  gsel_rebind_report report;
};

// Collectives over comm, whose ranks are those that hold a trainer, which call rebind, and new ones, which call join
// with a trainer that they have made. The state is the newest that the ranks have whole together; else, where folder
// is not empty, the newest checkpoint in it. GSEL_ERR_NOT_FOUND: neither; the old trainer is as it was.
Rebound rebind(Trainer& old, Communicator& comm, const Config* config, const std::string& folder,
               Disk& disk = real_disk());
gsel_rebind_report join(Trainer& made, const std::string& folder, Disk& disk = real_disk());

}  // namespace gsel::checkpoint
