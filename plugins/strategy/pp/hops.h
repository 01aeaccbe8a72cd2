/* pp/hops.h: the path of each value over the ranks of a pipeline. A value is sent along its chain, the ranks that
 * produce or read it in order of their first such stage; its gradient comes back along it. So every cut is crossed
 * once. Inputs have no chain: they are filled where they are read. */
#ifndef GSEL_STRATEGY_PP_HOPS_H
#define GSEL_STRATEGY_PP_HOPS_H

#include "pp.h"

/* A value on one rank of its chain. */
struct hop {
  int32_t value;
  int32_t stage;    /* on this rank: the producer's, else the first that reads it */
  int32_t previous; /* previous rank of the chain, -1: produced here */
  int32_t next;     /* next rank of the chain, or -1 */
  int gives;        /* its gradient is sent back from here */
  int awaits;       /* its gradient is received from the next rank */
};

/* The hops of stage s are all[of_stage[s]] .. all[of_stage[s + 1] - 1], ordered by value. */
struct hops {
  struct hop* all;
  int32_t* of_stage; /* [n_stages + 1] */
};

void find_hops(struct pp* pp, struct hops* hops);
void hops_free(struct hops* hops);

#endif
