// program/traffic.h: the calls that a rank makes in setup and in one step, and the bytes that it sends, per axis and
// kind of instruction, by the closed forms of the collectives (docs/program.md). The counts of an executor must equal
// them. Does not know the optimizer: one that needs norms of parameters makes further sums in STEP.
#pragma once

#include <gsel/comm.h>

#include <limits>
#include <map>
#include <utility>

#include "program/program.h"

namespace gsel {

// Messages stand under the pipeline axis, phases of layers under FORWARD and BACKWARD_INPUT of their axis.
using Traffic = std::map<std::pair<gsel_axis, gsel_instr_kind>, gsel_comm_count>;

Traffic setup_traffic(const Program& program);
// Of one instruction.
Traffic traffic_of(const Program& program, const gsel_instr& instr);
// Of step number `step`, from 0; not given: of one late enough for all compression to have started.
Traffic step_traffic(const Program& program, int64_t step = std::numeric_limits<int64_t>::max());

}  // namespace gsel
