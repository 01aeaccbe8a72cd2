/* pp/costs.h: what the layers cost that are cut into stages: time, from hints or from what was measured, and memory. */
#ifndef GSEL_STRATEGY_PP_COSTS_H
#define GSEL_STRATEGY_PP_COSTS_H

#include "pp.h"

struct costs {
  double* time;      /* [n_layers] of a micro-batch: forward and backward, in any one unit */
  double* kept;      /* [n_layers] bytes of parameters with what belongs to them */
  double* live;      /* [n_layers] bytes kept from forward to backward of a micro-batch */
  double* held;      /* [n_stages] most micro-batches between the two */
  const char* known; /* what time is taken from */
};

/* free_costs must follow, whether it fails or not. */
void find_costs(struct pp* pp, struct costs* c);
void free_costs(struct costs* c);

#endif
