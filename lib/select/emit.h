// select/emit.h: outputs of a selection: variables for child processes, JSON for programs, a table for people. Never
// changes the caller's own environment.
#pragma once

#include <string>

#include "select/resolve.h"

namespace gsel {

// Hosts with a selected unit, in the order of the selection.
std::vector<int32_t> selected_hosts(const Selection& selection);

// Variables for a child process on `host` that is to see all of the host's share (local_rank -1) or the unit of one
// local rank; one unit, or a CPU, serves every rank. GSEL_ERR_RANK_OVERFLOW, GSEL_ERR_ARG.
Emission selection_env(const Selection& selection, int32_t host, int32_t local_rank);

std::string selection_json(const Selection& selection);
std::string selection_text(const Selection& selection);

}  // namespace gsel
