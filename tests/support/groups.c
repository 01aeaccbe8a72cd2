/* See groups.h. */
#include "support/groups.h"

#include <stdlib.h>

void group_add(call_group* group, gsel_comm* comm, gsel_collective call) {
  if (group->n == GROUP_MOST) abort();
  group->comms[group->n] = comm;
  group->calls[group->n++] = call;
}

gsel_status group_run(call_group* group, gsel_error** err) {
  const gsel_collective* calls[GROUP_MOST];
  for (size_t i = 0; i < group->n; ++i) calls[i] = &group->calls[i];
  const gsel_status status = gsel_group_run(group->comms, calls, group->n, err);
  group->n = 0;
  return status;
}
