// base/host_services.h: the table of library functions that plugins can call. Plugins get a table since they do not
// link to libgsel.
#pragma once

#include <gsel/plugin.h>

namespace gsel {

const gsel_host_v1& host_services();

}  // namespace gsel
