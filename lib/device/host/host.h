// device/host/host.h: the parts of the host device. Each part adds its functions to the table, and runs them inside
// guard() (base/guard.h), so that no exception leaves the table.
#pragma once

#include <gsel/device.h>

#include "base/guard.h"

namespace gsel::host {

void add_memory(gsel_device_v1& table);
void add_streams(gsel_device_v1& table);
void add_kernels(gsel_device_v1& table);

}  // namespace gsel::host
