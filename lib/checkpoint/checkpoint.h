// checkpoint/checkpoint.h: saves and loads a trainer. Collectives; errors as gsel/checkpoint.h says.
#pragma once

#include <gsel/checkpoint.h>

#include <string>

#include "checkpoint/disk.h"
#include "checkpoint/save.h"
#include "train/trainer.h"

namespace gsel::checkpoint {

// Refuses what cannot be a target. GSEL_ERR_ARG.
void check_target(const SaveTarget& target);
// The same, with what the trainer knows of the folder.
SaveTarget target_of(const Trainer& trainer, const SaveTarget& given);

// BegunSave::finish, and the history of what was saved.
uint64_t finish_save(BegunSave& begun, Communicator& comm, SaveHistory& history, const std::string& folder,
                     int64_t step);

class BackgroundSave;

// other: refused while it is under way on some rank; nullptr: there is none.
gsel_checkpoint_report save(Trainer& trainer, const SaveTarget& target, Disk& disk = real_disk(),
                            BackgroundSave* other = nullptr);
// with_own: also the states that each rank has of its own, else they stay.
gsel_checkpoint_report load(Trainer& trainer, const std::string& path, Disk& disk = real_disk(), bool with_own = true);

}  // namespace gsel::checkpoint
