// train/query/mirror.h: copies of the state in host memory at the end of a step: each rank's own pieces, and those of
// one other rank, on another host where there is one, so that one rank can be lost without losing the step. Two steps
// are kept, since a rank may be lost while the newer is made.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "comm/communicator.h"
#include "train/query/state_move.h"

namespace gsel {

// By rank: the rank that keeps its copy; each keeps one. On another host, unless one host has more than half of the
// ranks; on a single host the next rank. hosts: by rank, the same number for ranks on one host.
std::vector<size_t> keepers(const std::vector<uint64_t>& hosts);

class Mirror {
 public:
  // A collective. The ranks of comm, each of which keeps its own() pieces of the dictionary.
  Mirror(Communicator& comm, StateDict dict);
  // A collective: bytes() of the mirror that would be made.
  static uint64_t forecast(Communicator& comm, const StateDict& dict);

  // A collective, between steps.
  void keep(const TrainingNumbers& numbers);
  // Revision of the newest copies; -1 if there are none.
  int64_t revision() const { return copies_[1 - next_].numbers ? copies_[1 - next_].numbers->revision : -1; }
  // Sets the rate of the newest copies, if they are of this step.
  void set_learning_rate(int64_t step, double rate);
  // Aborts the mirror's communicator, so that the other ranks do not wait for a rank that failed alone.
  void abort(std::string_view reason) noexcept {
    if (comm_) comm_->abort(reason);
  }
  // The copies stay, without the communicator and the trainer.
  void close();
  // What this rank has of the kept steps, its own pieces and the other's; borrows the memory.
  std::vector<HeldState> held() const;
  uint64_t bytes() const;

 private:
  struct OfferedPieces {
    std::vector<HeldState::Piece> pieces;
    std::vector<uint64_t> first;  // element in the copy, by piece
    uint64_t elems = 0;
  };
  struct Copy {
    std::optional<TrainingNumbers> numbers;  // none: incomplete
    std::vector<float> own, other;
  };
  struct Pair {
    size_t keeper = 0, kept = 0;  // the rank that keeps this one's copy, and the rank whose copy this one keeps
  };
  static Pair pair_of(Communicator& comm);
  static uint64_t bytes_of(uint64_t elems) { return 2 * sizeof(float) * elems; }
  static OfferedPieces pieces_of(const std::vector<int64_t>& list);
  static HeldState held_of(const OfferedPieces& offered, const std::vector<float>& values,
                           const TrainingNumbers& numbers);

  std::optional<Communicator> comm_;
  std::optional<StateDict> dict_;
  std::vector<StatePiece> own_pieces_;
  Pair pair_;
  OfferedPieces own_, other_;
  std::array<Copy, 2> copies_;
  size_t next_ = 0;  // of copies_
};

}  // namespace gsel
