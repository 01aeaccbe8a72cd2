/* support/same_params.h: parameters of two trials, compared bit for bit. */
#ifndef GSEL_TESTS_SAME_PARAMS_H
#define GSEL_TESTS_SAME_PARAMS_H

#include <string.h>

#include "support/ranks.h"

/* 0: the run has the first element that differs as its failure. */
static inline int same_params(rank_run* run, const float* params, const float* expected, int n) {
  for (int i = 0; i < n; ++i)
    if (memcmp(&params[i], &expected[i], sizeof(float))) {
      snprintf(run->failure, sizeof run->failure, "rank %d of %d: element %d of the parameters is %.9g, expected %.9g",
               (int)run->rank, (int)run->world_size, i, params[i], expected[i]);
      return 0;
    }
  return 1;
}

#endif
