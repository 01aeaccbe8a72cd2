// program/traffic.h: the calls that a rank makes and the bytes that it sends in setup and in one step, per axis and
// kind of instruction, by closed forms (docs/program.md). The executor's counts must equal them. Does not know the
// optimizer: one that needs norms of parameters makes additional sums in STEP.
#pragma once

#include <gsel/comm.h>

#include <limits>
#include <map>
#include <utility>

#include "program/program.h"

namespace gsel {

// Messages count under the pipeline axis, phases of layers under FORWARD and BACKWARD_INPUT of their axis.
using Traffic = std::map<std::pair<gsel_axis, gsel_instr_kind>, gsel_comm_count>;

Traffic setup_traffic(const Program& program);
// Of one instruction.
Traffic traffic_of(const Program& program, const gsel_instr& instr);
// step: from 0. Default: a step after all compression has started.
Traffic step_traffic(const Program& program, int64_t step = std::numeric_limits<int64_t>::max());

}  // namespace gsel
