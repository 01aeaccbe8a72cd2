// api/accelerator.h: finds the plugins of the device and transport that a caller names for a communicator.
#pragma once

#include <gsel/comm.h>

#include <functional>
#include <memory>

#include "base/config.h"
#include "comm/communicator.h"
#include "comm/device/accelerator.h"

namespace gsel {

// Returns a function that opens the accelerator; empty when the caller wants host memory. given and settings must
// outlive it.
Communicator::FindAccelerator accelerator_of(const gsel_comm_options& given, const Config& settings,
                                             const JoinOptions& join);
// Returns a function that opens the transport of host memory between hosts. given and settings must outlive it.
std::function<std::shared_ptr<const Accelerator>()> between_hosts_of(const gsel_comm_options& given,
                                                                     const Config& settings);

}  // namespace gsel
