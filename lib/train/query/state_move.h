// train/query/state_move.h: moves what trainers of one model hold between the ranks of a communicator, from any layouts
// to any others: from live trainers, or from copies that ranks have kept. Each rank takes what it needs from whoever
// has it, itself first; nothing is gathered. Does not know why.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "train/query/state_dict.h"

namespace gsel {

// What a rank has of the state as it was before a step.
struct HeldState {
  struct Piece {
    int32_t tensor;  // index in StateDict::tensors()
    Region region;
  };
  TrainingNumbers numbers;
  std::vector<Piece> pieces;
  // Elements [first, first + count) of a piece, to host memory.
  std::function<void(size_t piece, int64_t first, int64_t count, float* dst)> read;
};
// Of a trainer between steps; borrows it.
HeldState held_state(StateDict& dict, const TrainingNumbers& numbers);

struct MovedState {
  TrainingNumbers numbers;
  uint64_t bytes_moved = 0;  // from other ranks to this one
};

// What a rank offers, and what move_state has found out.
struct StateOffers {
  std::vector<HeldState> mine;
  int64_t newest = -1;
  std::string missing;
};
// A collective. Each rank offers what it has, of any steps; `into` gets the newest state that the ranks have whole
// together, of those not before first_step, which is the same on all ranks. nullopt, and nothing is written: there is
// none; `missing` then names a tensor that is not whole, of the newest step that was offered. newest: that step, -1 if
// nothing was offered.
std::optional<MovedState> move_state(Communicator& comm, StateOffers& offers, StateDict& into, int64_t first_step = 0);

// Regions as numbers, to be sent.
void put_region(std::vector<int64_t>& numbers, const Region& region);
Region take_region(const int64_t*& numbers);

// A collective: a list of numbers of any length from each rank.
std::vector<std::vector<int64_t>> gather_lists(Communicator& comm, const std::vector<int64_t>& mine);

}  // namespace gsel
