/* pp/search.h: what the partition of layers is found with: sums of its measures, and what a stage takes by them. Only
 * partition.c and ranks.c know it. */
#ifndef GSEL_STRATEGY_PP_SEARCH_H
#define GSEL_STRATEGY_PP_SEARCH_H

#include "partition.h"

/* Sums of doubles in another order differ in their last bits. */
static const double kSlack = 1e-9;

/* Sums of a measure over layers before i. */
struct sums {
  double *fixed, *scaled;
};

struct search {
  const struct partition* p;
  struct sums first, second;
  double* best;               /* [n_stages + 1][n_layers + 1] */
  int32_t* from;              /* the same: where the last stage begins */
  int32_t *earliest, *latest; /* [n_stages + 1]: where a stage can begin; the last entry is the end of all */
  double* load;               /* [2][n_ranks] */
};

static inline double weight_of(const struct partition* p, int32_t stage) {
  return p->weight ? p->weight[stage] : 1;
}

static inline double amount(const struct partition* p, const struct measure* m, const struct sums* s, int32_t stage,
                            int32_t begin, int32_t end) {
  const double fixed = s->fixed[end] - s->fixed[begin];
  return (m->factor ? fixed + m->factor[stage] * (s->scaled[end] - s->scaled[begin]) : fixed) / weight_of(p, stage);
}

static inline int32_t end_of(const struct partition* p, const int32_t* begin, int32_t stage) {
  return stage + 1 < p->n_stages ? begin[stage + 1] : p->n_layers;
}

/* ranks.c: moves cuts while that makes the ranks more even, then looks at all ways that could be better still, as far
 * as patience goes. For ranks with several stages, whose sums depend on all cuts at once. */
int share_among_ranks(const struct search* q, int32_t* begin);

#endif
