// device/host/table.h: the built-in device: host memory, threads as streams.
#pragma once

#include <gsel/device.h>

namespace gsel {

const gsel_device_v1& host_device_table();

}  // namespace gsel
