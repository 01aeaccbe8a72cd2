// base/host_services.h: the functions of the library that plugins can call, as a table, since they do not
// link to libgsel.
#pragma once

#include <gsel/plugin.h>

namespace gsel {

const gsel_host_v1& host_services();

}  // namespace gsel
