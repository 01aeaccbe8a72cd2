/* pp/partition.h: cuts a list of layers into stages. Works on numbers only; does not know what layers are and what they
 * cost. */
#ifndef GSEL_STRATEGY_PP_PARTITION_H
#define GSEL_STRATEGY_PP_PARTITION_H

#include <stdint.h>

/* The amount of a stage: the sum of fixed[layer] and, with factor, of factor[stage] * scaled[layer]. */
struct measure {
  const double* fixed;  /* [n_layers] */
  const double* scaled; /* [n_layers], or NULL */
  const double* factor; /* [n_stages], or NULL */
};

struct partition {
  int32_t n_layers, n_stages, n_ranks;
  const int32_t* rank_of_stage;   /* [n_stages] */
  const unsigned char* may_begin; /* [n_layers] 1: a stage may begin with this layer */
  struct measure first, second;   /* minimised first, and among equals */
  const double* weight;           /* [n_stages] of the stage's rank: divides its amounts; NULL: 1 each */
};

enum { PARTITION_OK, PARTITION_IMPOSSIBLE, PARTITION_NO_MEMORY };

/* The most stages that the layers can be cut into. */
int32_t most_stages(const struct partition* p);

/* begin[n_stages]: each stage's first layer. If each rank has one stage, the largest `first` is minimal. With several
 * stages per rank, loads of ranks that differ by less than 1 % count as equal, and the result is the optimum if few
 * enough partitions have to be tried, else a local optimum under moves of one or two cuts. Ties are decided by the
 * largest stage, then by the largest rank's `second`, then by evenness. */
int partition_layers(const struct partition* p, int32_t* begin);

/* The largest rank's share of the sum of `measure`; if ranks differ in weight, as if it had the mean weight. */
double largest_share(const struct partition* p, const struct measure* measure, const int32_t* begin);
/* The amount of a stage. */
double stage_amount(const struct partition* p, const struct measure* measure, const int32_t* begin, int32_t stage);

#endif
