/* pp/search.h: the state of the partition search: sums of the measures, and amounts of stages from these. Private to
 * partition.c and ranks.c. */
#ifndef GSEL_STRATEGY_PP_SEARCH_H
#define GSEL_STRATEGY_PP_SEARCH_H

#include "partition.h"

/* Tolerance: sums of doubles in another order differ in their last bits. */
static const double kSlack = 1e-9;

/* Prefix sums of a measure over the layers before i. */
struct sums {
  double *fixed, *scaled;
};

struct search {
  const struct partition* p;
  struct sums first, second;
  double* best;               /* [n_stages + 1][n_layers + 1] */
  int32_t* from;              /* the same: first layer of the last stage */
  int32_t *earliest, *latest; /* [n_stages + 1]: first layers of stages; the last entry is the end */
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

/* ranks.c: moves cuts while that makes the ranks more even, then tries all partitions that could be better, within a
 * budget. For ranks with several stages, whose sums depend on all cuts together. */
int share_among_ranks(const struct search* q, int32_t* begin);

#endif
