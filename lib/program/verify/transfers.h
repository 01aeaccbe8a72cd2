// program/verify/transfers.h: the number of messages that may be under way from one rank to another (`transfers`). If
// it is large enough, no schedule that verifies can deadlock; this file finds how large. A number that is enough for
// programs is also enough for the same programs without some of their messages, since each message then waits for one
// that was sent earlier.
#pragma once

#include "program/job.h"

namespace gsel {

// The least of 2, 4, 8, ... for Program::transfers with which the programs of a job come to their end. GSEL_ERR_PROGRAM
// where no number is enough, naming a rank and what it waits for.
int32_t enough_transfers(const Job& job);

}  // namespace gsel
