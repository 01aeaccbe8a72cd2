// api/comm_handle.h: the object that gsel_comm points to.
#pragma once

#include "comm/communicator.h"

struct gsel_comm {
  gsel::Communicator impl;
};
