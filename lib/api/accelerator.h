// api/accelerator.h: the device and the transport that a caller names for a communicator, found among the plugins.
#pragma once

#include <gsel/comm.h>

#include <memory>

#include "base/config.h"
#include "comm/on_device/accelerator.h"

namespace gsel {

// nullptr: the caller wants memory of the host.
std::shared_ptr<const Accelerator> accelerator_of(const gsel_comm_options& given, const Config& settings);

}  // namespace gsel
