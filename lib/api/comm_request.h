// api/comm_request.h: the options of a join with all defaults filled in.
#pragma once

#include "api/accelerator.h"
#include "api/handles.h"
#include "base/options.h"
#include "base/text.h"
#include "comm/communicator.h"

namespace gsel {

inline Config settings_of(const gsel_comm_options& given) {
  return given.config ? given.config->impl : environment_config();
}

// `given` has the current size. The result borrows from given and settings, which must outlive it.
inline JoinOptions join_of(gsel_comm_options& given, const Config& settings) {
  if (given.timeout_s == 0) given.timeout_s = settings.comm.timeout_s;
  JoinOptions join = complete_join(given);
  join.find_between_hosts = between_hosts_of(given, settings);
  if (join.trace.len == 0) join.trace = borrow(settings.comm.trace);
  return join;
}

}  // namespace gsel
