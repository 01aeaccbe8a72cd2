// checkpoint/load.h: reads a checkpoint into a trainer of any layout: each rank reads the bytes that it holds, whoever
// wrote them.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/disk.h"
#include "checkpoint/index.h"
#include "comm/communicator.h"
#include "train/query/state_dict.h"
#include "train/query/user_state.h"

namespace gsel::checkpoint {

struct Loaded {
  std::string path;  // of the checkpoint
  TrainingNumbers numbers;
  uint64_t bytes_read = 0;             // of tensors, by this rank
  uint64_t bytes_held = 0;             // that this rank needed
  uint64_t bytes_compared = 0;         // of blocks that no rank needs as a whole, read by this rank for their sums
  std::vector<std::string> damaged{};  // newer checkpoints, which have other sums
};

// A collective. path: a checkpoint, or a folder with several: the newest whole one is taken, and where its sums are
// wrong the next older one. Everything but the sums of blocks that a rank needs as a whole is checked before the first
// element of the trainer is changed; `begins_to_write` is called then, and from there on a failure leaves a mixture.
// GSEL_ERR_NOT_FOUND, GSEL_ERR_PARSE (with file and place), GSEL_ERR_MISMATCH (the checkpoint is of another model or
// optimizer; names what differs), GSEL_ERR_IO; on the other ranks GSEL_ERR_PEER.
Loaded load(Communicator& comm, StateDict& state, const std::vector<UserState>& users, const std::string& optimizer,
            const std::string& path, Disk& disk, const std::function<void()>& begins_to_write);

}  // namespace gsel::checkpoint
