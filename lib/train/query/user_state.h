// train/query/user_state.h: a state of the embedder's that checkpoints hold beside the trainer's.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gsel {

struct UserState {
  std::string name;
  void* data = nullptr;  // borrowed
  uint64_t bytes = 0;
  bool is_of_rank = false;  // else the same on every rank

  bool operator==(const UserState&) const = default;
};

// Of letters, digits, '_', '-', '.' and '/'.
bool is_state_name(std::string_view name);
// Adds one. GSEL_ERR_ARG if the name is taken or invalid, or if data is NULL for some bytes.
void add_user_state(std::vector<UserState>& states, UserState state);

// What other ranks have of a shared state, for a rank that has not added it yet.
struct GivenState {
  std::string name, bytes;
};
// If other ranks have given this state: copies it to the embedder's memory and removes it from the list.
// GSEL_ERR_MISMATCH if the sizes differ; then nothing is changed.
void take_given(std::vector<GivenState>& given, const UserState& state);
// Shared states, added or given, as bytes to be sent, and back.
std::string pack_shared(const std::vector<UserState>& states, const std::vector<GivenState>& given);
std::vector<GivenState> unpack_shared(std::string_view packed);

}  // namespace gsel
