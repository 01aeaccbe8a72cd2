// train/compile/pass_calls.h: shared by the files of the pass API: checks of a plugin's arguments, and the calls about
// pipelines.
#pragma once

#include <algorithm>
#include <cstring>
#include <new>

#include "train/compile/pass.h"

namespace gsel {

template <class List>
bool within(const List& list, int32_t i) {
  return i >= 0 && static_cast<size_t>(i) < list.size();
}

template <class Info>
bool states_its_size(const Info* info) {
  return info && info->struct_size >= 2 * sizeof(uint32_t);
}

// Copies the fields of the plugin's struct; false when it has none, or sets fields that this version does not know.
template <class Info>
bool take(const Info* given, Info& out) {
  if (!states_its_size(given)) return false;
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  if (given->struct_size > sizeof out &&
      std::any_of(bytes + sizeof out, bytes + given->struct_size, [](unsigned char b) { return b != 0; }))
    return false;
  std::memcpy(&out, given, std::min<size_t>(given->struct_size, sizeof out));
  return true;
}

// Runs an edit of the program and turns exceptions into codes.
template <class Edit>
gsel_status attempt(Edit&& edit) noexcept {
  try {
    edit();
    return GSEL_OK;
  } catch (const std::bad_alloc&) {
    return GSEL_ERR_NOMEM;
  } catch (...) {
    return GSEL_ERR_ARG;
  }
}

const ParamHolders& param_holders(const gsel_pass* pass);

// Members of gsel_pass_api_v1.
gsel_status set_stages(gsel_pass* pass, const int32_t* stage_of_layer, const int32_t* rank_of_stage, int32_t n_stages);
int32_t bucket_count(const gsel_pass* pass);
gsel_status schedule(gsel_pass* pass, const char* name, int32_t chunks, const gsel_schedule** out, gsel_error** err);
gsel_status schedule_file(gsel_pass* pass, const char* path, const gsel_schedule** out, gsel_error** err);
int32_t schedule_stages(const gsel_schedule* schedule);
int32_t schedule_rank_of(const gsel_schedule* schedule, int32_t stage);
int32_t schedule_length(const gsel_schedule* schedule, int32_t rank);
gsel_status schedule_action(const gsel_schedule* schedule, int32_t rank, int32_t i, gsel_action* out);
gsel_status measured(gsel_pass* pass, const char* path, double* seconds, gsel_error** err);
void note(gsel_pass* pass, const char* line);
gsel_status suggest(gsel_pass* pass, const gsel_suggestion* suggestion);

}  // namespace gsel
