/* support/groups.h: calls collected one by one, then made together by gsel_group_run. */
#ifndef GSEL_TESTS_GROUPS_H
#define GSEL_TESTS_GROUPS_H

#include "support/check.h"

#define GROUP_MOST 192

typedef struct call_group {
  size_t n;
  gsel_comm* comms[GROUP_MOST];
  gsel_collective calls[GROUP_MOST];
} call_group;

/* Puts a call into the group; the caller keeps its buffers. */
void group_add(call_group* group, gsel_comm* comm, gsel_collective call);

/* Makes them and empties the group. */
gsel_status group_run(call_group* group, gsel_error** err);

#endif
