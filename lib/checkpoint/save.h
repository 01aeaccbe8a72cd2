// checkpoint/save.h: writes what a trainer holds as a checkpoint: a folder with a safetensors file of each rank, an
// index and, last, a manifest. It has a temporary name until all is on the disk, so that whatever ends the save leaves
// the checkpoints before it as they are.
#pragma once

#include <string>

#include "checkpoint/disk.h"
#include "checkpoint/index.h"
#include "comm/communicator.h"
#include "train/query/state_dict.h"

namespace gsel::checkpoint {

// A collective. folder: of all checkpoints; made if there is none. Returns the bytes of tensors that this rank wrote.
// GSEL_ERR_STATE: there is one of this step. GSEL_ERR_IO, on the other ranks GSEL_ERR_PEER.
uint64_t save(Communicator& comm, StateDict& state, const TrainingNumbers& numbers, const std::string& optimizer,
              const std::string& folder, Disk& disk);

// Of the step in a folder of checkpoints.
std::string name_of_step(int64_t step);

}  // namespace gsel::checkpoint
