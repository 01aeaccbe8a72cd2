// plan/measure_links.h: what calls of a communicator take on this machine (plan/measure.h). Does not know models.
#pragma once

#include <vector>

#include "comm/communicator.h"
#include "plan/measured.h"

namespace gsel::plan {

double median_of(std::vector<double> numbers);

// Collectives of growing groups, messages and copies, for so many seconds. A collective of all ranks of comm.
void time_links(Communicator& comm, double seconds, Measured& measured);

}  // namespace gsel::plan
