/* pp/hops.h: the way of each value over the ranks of a pipeline. A value goes along its chain: the ranks that produce
 * or read it, in order of their first stage that does; its gradient comes back along it. So every cut is crossed once.
 * Inputs are filled where they are read and have no chain. */
#ifndef GSEL_STRATEGY_PP_HOPS_H
#define GSEL_STRATEGY_PP_HOPS_H

#include "pp.h"

/* A value on one rank of its chain. */
struct hop {
  int32_t value;
  int32_t stage;    /* of this rank: the one that produces it, or else the first that reads it */
  int32_t previous; /* rank on the chain, -1: it is produced here */
  int32_t next;     /* -1: it goes no further */
  int gives;        /* its gradient goes back from here */
  int awaits;       /* and comes back from the next rank */
};

/* Those of stage s are all[of_stage[s]] .. all[of_stage[s + 1] - 1], in order of their values. */
struct hops {
  struct hop* all;
  int32_t* of_stage; /* [n_stages + 1] */
};

void find_hops(struct pp* pp, struct hops* hops);
void hops_free(struct hops* hops);

#endif
