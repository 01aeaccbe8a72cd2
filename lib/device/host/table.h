// device/host/table.h: the built-in device: host memory, threads as streams.
#pragma once

#include <gsel/device.h>

namespace gsel {

const gsel_device_v1& host_device_table();

// The parts of the table. Their functions run inside guard() (base/guard.h), so that no exception leaves the table.
namespace host {

void add_memory(gsel_device_v1& table);
void add_streams(gsel_device_v1& table);
void add_kernels(gsel_device_v1& table);

}  // namespace host

}  // namespace gsel
