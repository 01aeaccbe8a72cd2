// checkpoint/save.h: writes what a trainer holds as a checkpoint: a folder with a safetensors file of each rank, an
// index and, last, a manifest. It has a temporary name until all is on the disk, so that whatever ends the save leaves
// the checkpoints before it as they are.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/disk.h"
#include "checkpoint/index.h"
#include "comm/communicator.h"
#include "train/query/state_dict.h"
#include "train/query/user_state.h"

namespace gsel::checkpoint {

// What this rank writes, sorted by tensor, and its elements: of a trainer between steps, or of a copy.
struct SavedState {
  std::vector<StateTensor> tensors;
  std::vector<StatePiece> pieces;
  std::vector<UserState> users;
  // Elements [first, first + count) of a piece, to host memory.
  std::function<void(size_t piece, int64_t first, int64_t count, float* dst)> read;
};
// What a rank writes of a trainer's state, which is borrowed.
SavedState saved_state(StateDict& state, const std::vector<UserState>& users);

// Where to, and what is kept besides: see NewCheckpoint::remove_older.
struct SaveTarget {
  std::string folder;  // of all checkpoints; made if there is none
  int32_t keep = 0;
  std::vector<std::string> damaged{};  // checkpoints that are known to be, of which this one takes the name
};

// A save whose folder has been made. Without finish() it is undone by the destructor of the first rank.
class BegunSave {
 public:
  virtual ~BegunSave() = default;
  // A collective of the same ranks, on any thread. Returns the bytes of tensors that this rank wrote. GSEL_ERR_IO, on
  // the other ranks GSEL_ERR_PEER.
  virtual uint64_t finish(Communicator& comm) = 0;
  // On the first rank: whether the checkpoint has its name, which a rank that is lost at the end does not undo.
  virtual bool is_committed() const = 0;
};

// A collective, of which comm is borrowed for this call. GSEL_ERR_STATE: there is one of this step. GSEL_ERR_MISMATCH:
// `keep` differs. GSEL_ERR_IO, on the other ranks GSEL_ERR_PEER.
std::unique_ptr<BegunSave> begin_save(Communicator& comm, SavedState state, const TrainingNumbers& numbers,
                                      const std::string& optimizer, const SaveTarget& target, Disk& disk);

}  // namespace gsel::checkpoint
