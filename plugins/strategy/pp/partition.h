/* pp/partition.h: a list of layers cut into stages. Does not know what layers are and what they cost: it is given
 * numbers. */
#ifndef GSEL_STRATEGY_PP_PARTITION_H
#define GSEL_STRATEGY_PP_PARTITION_H

#include <stdint.h>

/* What a stage takes of something: the sum of fixed[layer] and, with factor, of factor[stage] * scaled[layer]. */
struct measure {
  const double* fixed;  /* [n_layers] */
  const double* scaled; /* [n_layers], or NULL */
  const double* factor; /* [n_stages], or NULL */
};

struct partition {
  int32_t n_layers, n_stages, n_ranks;
  const int32_t* rank_of_stage;   /* [n_stages] */
  const unsigned char* may_begin; /* [n_layers] 1: a stage may begin with this layer */
  struct measure first, second;   /* what is kept small, and what decides between equals */
  const double* weight;           /* [n_stages] of its rank: what a stage takes counts divided by it; NULL: 1 each */
};

enum { PARTITION_OK, PARTITION_IMPOSSIBLE, PARTITION_NO_MEMORY };

/* Most stages that the layers can be cut into. */
int32_t most_stages(const struct partition* p);

/* begin[n_stages]: each stage's first layer. Where each rank has one stage, the largest rank's `first` is the least
 * possible. Else loads of ranks that differ by less than 1 % are equals, and the result is the best of all where few
 * enough ways lead through all cuts, or what moving one or two cuts at a time cannot better. Of equals, that with the
 * smaller largest stage, then with the smaller `second` of the largest rank, then the most even. */
int partition_layers(const struct partition* p, int32_t* begin);

/* The largest rank's share of all that `measure` adds up to; of ranks that differ in weight, what it would be with
 * the mean weight. */
double largest_share(const struct partition* p, const struct measure* measure, const int32_t* begin);
/* What a stage takes. */
double stage_amount(const struct partition* p, const struct measure* measure, const int32_t* begin, int32_t stage);

#endif
