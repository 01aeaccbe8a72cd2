// comm/shm/transport.h: the built-in transport's table: ranks of one host, through shared memory.
#pragma once

#include <gsel/transport.h>

namespace gsel::shm {

const gsel_transport_v1& transport_table();

}  // namespace gsel::shm
