// base/host_services.h: what plugins and backends get of us, as a table: they link to nothing of ours.
#pragma once

#include <gsel/plugin.h>

namespace gsel {

const gsel_host_v1& host_services();

}  // namespace gsel
