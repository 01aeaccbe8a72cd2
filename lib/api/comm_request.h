// api/comm_request.h: how a caller wants to join, complete.
#pragma once

#include "api/config_handle.h"
#include "base/options.h"
#include "comm/communicator.h"

namespace gsel {

// `given` has today's size.
inline gsel_join join_of(gsel_comm_config given) {
  if (given.timeout_s == 0) given.timeout_s = (given.config ? given.config->impl : environment_config()).comm.timeout_s;
  return complete_join(given);
}

}  // namespace gsel
