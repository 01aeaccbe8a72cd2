/* trained.h: the chain of chain.h as a model that a trainer steps, a layer with a parameter for each stage: what a step
 * takes where the norm of all gradients is looked at, by ranks that wait for it and by ranks that post_validate it
 * later. */
#ifndef BENCH_TRAINED_H
#define BENCH_TRAINED_H

#include "chain.h"

struct trained {
  const char* schedule;
  int ranks, microbatches;
  double part_s;             /* sleep of forward and of each half of backward, of a stage for one micro-batch */
  double clip_norm;          /* 0: none */
  const char* post_validate; /* as of the plugin pp */
};

/* Trains `steps` steps in a row after a first one; periods_s [steps]: from the last callback's end of the step before
 * to that of this one. Leaves the program with a message where that fails. */
void train_in_a_row(const struct trained* trained, int steps, double* periods_s);

#endif
