// program/simulate/launch_order.h: one order for all calls of a job on devices. A device may run its calls one at a
// time, in the order in which they were launched, so two ranks that launch two calls in opposite orders wait for each
// other. Source: NVIDIA, NCCL user guide, "Using multiple NCCL communicators concurrently". The order is that of a
// simulation in which every activity takes one unit of time, whether or not a micro-batch has samples. It is therefore
// the same for replicas, and each call comes after all that it depends on.
#pragma once

#include <cstdint>
#include <vector>

#include "program/job.h"

namespace gsel {

// By program of the job, then by position in its step: when the instruction launches its calls. For a RECV, when its
// SEND does, so that a rank can launch the receive before its own later calls. Equal on all ranks of a call, and
// different for different calls of a rank. GSEL_ERR_UNSUPPORTED if ranks that make each call together cannot go on.
std::vector<std::vector<int64_t>> launch_times(const Job& job);

}  // namespace gsel
