/* support/step_equals.h: the small model under a variation must give the parameters that one rank gives, on 1 to 3
 * ranks under each strategy. */
#ifndef GSEL_TESTS_STEP_EQUALS_H
#define GSEL_TESTS_STEP_EQUALS_H

#include "support/step_model.h"

enum { RUN_STEPS = 4, N_ELEMS = STEP_PARAMS * STEP_WIDTH };

typedef struct trial {
  step_model m;
  int steps;
  const float* expected;
  float* out; /* [world_size][N_ELEMS] */
} trial;

/* A rank of the trial that is the run's user data. */
void run_steps(rank_run* run);

/* On one rank; then 1 to 3 ranks under each strategy must give the same. */
void equals_after(int steps, const step_model* one, const char* one_config, const step_model* many,
                  const char* many_config);
void equals(const step_model* one, const char* one_config, const step_model* many, const char* many_config);
step_model nothing(void);

#endif
