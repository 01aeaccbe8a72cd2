/* support/groups.h: calls collected one by one, then made together by gsel_group_run. */
#ifndef GSEL_TESTS_GROUPS_H
#define GSEL_TESTS_GROUPS_H

#include <stdlib.h>

#include "support/check.h"

#define GROUP_MOST 192

typedef struct call_group {
  size_t n;
  gsel_comm *comms[GROUP_MOST];
  gsel_collective calls[GROUP_MOST];
} call_group;

static inline void group_add(call_group *group, gsel_comm *comm, gsel_collective call) {
  if (group->n == GROUP_MOST) abort();
  group->comms[group->n] = comm;
  group->calls[group->n++] = call;
}

/* Makes them and empties the group. */
static inline gsel_status group_run(call_group *group, gsel_error **err) {
  const gsel_collective *calls[GROUP_MOST];
  for (size_t i = 0; i < group->n; ++i) calls[i] = &group->calls[i];
  const gsel_status status = gsel_group_run(group->comms, calls, group->n, err);
  group->n = 0;
  return status;
}

#endif
