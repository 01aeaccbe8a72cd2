// program/transfers.h: how far ahead messages are posted. With room for enough of them no schedule that verifies can
// deadlock; this finds how much is enough. What is enough for programs is enough for what is left of them without some
// of their messages, too: each then waits for one that was sent earlier.
#pragma once

#include "program/job.h"

namespace gsel {

// The least of 2, 4, 8, ... for Program::transfers with which the programs of a job come to their end. GSEL_ERR_PROGRAM
// where no number would do, naming a rank and what it waits for.
int32_t enough_transfers(const Job& job);

}  // namespace gsel
