/* pp/costs.h: the costs of layers for the choice of stages: time, from hints or measurements, and memory. */
#ifndef GSEL_STRATEGY_PP_COSTS_H
#define GSEL_STRATEGY_PP_COSTS_H

#include "pp.h"

struct costs {
  double* time;      /* [n_layers] forward and backward of a micro-batch, in any unit */
  double* kept;      /* [n_layers] bytes of parameters, gradients and optimizer state */
  double* live;      /* [n_layers] bytes per micro-batch, kept from forward to backward */
  double* held;      /* [n_stages] most micro-batches between forward and backward */
  const char* known; /* source of the times */
};

/* Call free_costs even if it fails. */
void find_costs(struct pp* pp, struct costs* c);
void free_costs(struct costs* c);

#endif
