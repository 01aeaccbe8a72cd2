// train/query/user_state.cc: see user_state.h.
#include "train/query/user_state.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"

namespace gsel {

void add_user_state(std::vector<UserState>& states, UserState state) {
  constexpr std::string_view kMarks = "_-./";
  const auto is_allowed = [&](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || kMarks.find(c) != kMarks.npos;
  };
  if (state.name.empty() || !std::ranges::all_of(state.name, is_allowed))
    fail(GSEL_ERR_ARG, "name is {}; expected letters, digits, '_', '-', '.' and '/'", in_quotes(state.name));
  if (std::ranges::find(states, state.name, &UserState::name) != states.end())
    fail(GSEL_ERR_ARG, "the trainer has a state {} already", in_quotes(state.name));
  if (state.bytes > 0 && !state.data) fail(GSEL_ERR_ARG, "data is NULL, and bytes {}", state.bytes);
  states.push_back(std::move(state));
}

}  // namespace gsel
