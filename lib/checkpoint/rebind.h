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
// with a trainer that they have made. The state is the newest that the ranks have whole together, or the checkpoint
// that they have saved last in the folder, if that is newer; else the newest of the folder. folder: of the first rank
// that gives one. GSEL_ERR_NOT_FOUND: there is none; the old trainer is as it was.
Rebound rebind(Trainer& old, Communicator& comm, const Config* config, const std::string& folder,
               Disk& disk = real_disk());
gsel_rebind_report join(Trainer& made, const std::string& folder, Disk& disk = real_disk());

}  // namespace gsel::checkpoint
