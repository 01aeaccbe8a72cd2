// api/comm_handle.h: what stands behind gsel_comm.
#pragma once

#include "comm/communicator.h"

struct gsel_comm {
  gsel::Communicator impl;
};
