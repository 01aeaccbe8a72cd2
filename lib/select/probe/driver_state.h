// select/probe/driver_state.h: whether this process's CUDA driver has been started already, and with which devices. A
// mask that is set after that is silently ignored, so a selection by it would be wrong.
#pragma once

#include "select/rules/rules.h"

namespace gsel {

// GSEL_ERR_ALREADY_INITIALIZED when the driver is up and sees other devices than the environment now names. Asks only
// a driver that is loaded and initialised; loads and starts nothing.
void check_driver_state(const Inventory& inventory, const Environment& environment);

}  // namespace gsel
