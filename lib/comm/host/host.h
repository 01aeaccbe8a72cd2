// comm/host/host.h: the parts of the built-in backend and the wall around them. Each part fills its functions into the
// table; the table is all anybody else sees.
#pragma once

#include <gsel/plugin.h>

#include "base/guard.h"

namespace gsel::host {

void add_memory(gsel_backend_v1& table);
void add_streams(gsel_backend_v1& table);
void add_kernels(gsel_backend_v1& table);
void add_link(gsel_backend_v1& table);

}  // namespace gsel::host
