// train/query/mirror.h: copies of the state in host memory at the end of a step: each rank's own part, and that of the
// rank before it, so that one rank can be lost without losing the step. Two steps are kept, since a rank may be lost
// while the newer is made.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "comm/communicator.h"
#include "train/query/state_move.h"

namespace gsel {

class Mirror {
 public:
  // A collective. The ranks of comm, each of which writes its own() part of the dictionary.
  Mirror(Communicator& comm, StateDict& dict);

  // A collective, at the end of a step.
  void keep(StateDict& dict, const TrainingNumbers& numbers);
  // What this rank has of the kept steps, its own part and the other's; borrows the memory.
  std::vector<HeldState> held() const;
  uint64_t bytes() const;

 private:
  struct Parts {
    std::vector<HeldState::Piece> pieces;
    std::vector<uint64_t> first;  // element in the copy, by piece
    uint64_t elems = 0;
  };
  struct Copy {
    std::optional<TrainingNumbers> numbers;  // none: incomplete
    std::vector<float> own, other;
  };
  static Parts parts_of(const std::vector<int64_t>& list);
  static HeldState held_of(const Parts& parts, const std::vector<float>& values, const TrainingNumbers& numbers);

  std::optional<Communicator> comm_;
  Parts own_, other_;
  std::array<Copy, 2> copies_;
  size_t next_ = 0;  // of copies_
};

}  // namespace gsel
