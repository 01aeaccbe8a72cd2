// api/accelerator.h: the device and the transport that a caller names for a communicator, found among the plugins.
#pragma once

#include <gsel/comm.h>

#include <functional>
#include <memory>

#include "base/config.h"
#include "comm/communicator.h"
#include "comm/device/accelerator.h"

namespace gsel {

// What opens the accelerator; empty: the caller wants memory of the host. given and settings must outlive it.
Communicator::FindAccelerator accelerator_of(const gsel_comm_options& given, const Config& settings,
                                             const JoinOptions& join);
// What opens the transport that moves memory of the host between hosts. given and settings must outlive it.
std::function<std::shared_ptr<const Accelerator>()> between_hosts_of(const gsel_comm_options& given,
                                                                     const Config& settings);

}  // namespace gsel
