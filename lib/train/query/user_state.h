// train/query/user_state.h: a state of the embedder's that checkpoints hold beside the trainer's.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gsel {

struct UserState {
  std::string name;
  void* data = nullptr;  // borrowed
  uint64_t bytes = 0;
  bool is_of_rank = false;  // else the same on every rank

  bool operator==(const UserState&) const = default;
};

// Adds one. GSEL_ERR_ARG: the name is there, or no name.
void add_user_state(std::vector<UserState>& states, UserState state);

}  // namespace gsel
