/* nets/scenario.h: what ranks do from joining to leaving: every protocol, requests, messages, more communicators, a
 * failure and a shrink; or a trainer from its plugins to its end. Right are the results of the calls, or an error that
 * ends the rank's part. */
#ifndef GSEL_TESTS_NETS_SCENARIO_H
#define GSEL_TESTS_NETS_SCENARIO_H

#include "support/ranks.h"

/* How a rank's part ended. Memory that forked ranks share. */
typedef struct part_end {
  int32_t rank;
  gsel_status status; /* of the first call that failed; 1: a wrong result */
  int32_t about;      /* the rank that the error names */
  char text[400];     /* the call and the error's chain, or what was wrong */
} part_end;

typedef struct part {
  rank_run run;
  part_end* end;
  double timeout_s;
  const char* folder; /* for files, this rank's */
  int draws;          /* a trainer draws a timeline of each step */
  int with_fault;     /* some rank's call fails: it may be left behind */
} part;

typedef void (*scenario_body)(part* p);

void scenario_comm(part* p);
void scenario_trainer(part* p);
/* Files, plugins, inventories, reservations; of one rank. */
void scenario_files(part* p);

#endif
