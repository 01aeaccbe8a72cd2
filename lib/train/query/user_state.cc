// train/query/user_state.cc: see user_state.h.
#include "train/query/user_state.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/text.h"

namespace gsel {

bool is_state_name(std::string_view name) {
  constexpr std::string_view kMarks = "_-./";
  return !name.empty() && std::ranges::all_of(name, [&](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || kMarks.find(c) != kMarks.npos;
  });
}

void add_user_state(std::vector<UserState>& states, UserState state) {
  if (!is_state_name(state.name))
    fail(GSEL_ERR_ARG, "name is {}; expected letters, digits, '_', '-', '.' and '/'", in_quotes(state.name));
  if (std::ranges::find(states, state.name, &UserState::name) != states.end())
    fail(GSEL_ERR_ARG, "the trainer has a state {} already", in_quotes(state.name));
  if (state.bytes > 0 && !state.data) fail(GSEL_ERR_ARG, "data is NULL, and bytes {}", state.bytes);
  states.push_back(std::move(state));
}

void take_given(std::vector<GivenState>& given, const UserState& state) {
  const auto found = std::ranges::find(given, state.name, &GivenState::name);
  if (state.is_of_rank || found == given.end()) return;
  if (found->bytes.size() != state.bytes)
    fail(GSEL_ERR_MISMATCH, "the state {} has {} bytes on the ranks that this one has joined, and {} here",
         in_quotes(state.name), found->bytes.size(), state.bytes);
  if (state.bytes > 0) std::memcpy(state.data, found->bytes.data(), state.bytes);
  given.erase(found);
}

std::string pack_shared(const std::vector<UserState>& states, const std::vector<GivenState>& given) {
  std::string packed;
  const auto put = [&packed](std::string_view text) {
    const uint64_t bytes = text.size();
    packed.append(reinterpret_cast<const char*>(&bytes), sizeof bytes).append(text);
  };
  for (const UserState& state : states) {
    if (state.is_of_rank) continue;
    put(state.name);
    put({static_cast<const char*>(state.data), state.bytes});
  }
  for (const GivenState& state : given) {
    put(state.name);
    put(state.bytes);
  }
  return packed;
}

std::vector<GivenState> unpack_shared(std::string_view packed) {
  const auto take = [&packed] {
    uint64_t bytes = 0;
    std::memcpy(&bytes, packed.data(), sizeof bytes);
    std::string text(packed.substr(sizeof bytes, bytes));
    packed.remove_prefix(sizeof bytes + bytes);
    return text;
  };
  std::vector<GivenState> given;
  while (!packed.empty()) {
    std::string name = take();
    given.push_back({std::move(name), take()});
  }
  return given;
}

}  // namespace gsel
