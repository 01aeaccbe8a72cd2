// plan/measure_links.h: measures the calls of a communicator on this machine (plan/measure.h). Does not know models.
#pragma once

#include <vector>

#include "comm/communicator.h"
#include "plan/measured.h"

namespace gsel::plan {

double median_of(std::vector<double> numbers);

// Measures collectives of growing groups, messages and copies for `seconds`. A collective of all ranks of comm.
void time_links(Communicator& comm, double seconds, Measured& measured);

}  // namespace gsel::plan
