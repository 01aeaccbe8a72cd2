/* support/equality_reference.h: the loop that docs/equality.md describes, for the model of equality_model.h: one
 * thread, no communicator, sums written out in the order of that page. */
#ifndef GSEL_TESTS_EQUALITY_REFERENCE_H
#define GSEL_TESTS_EQUALITY_REFERENCE_H

#include "support/equality_model.h"

/* The orders of sums of that page. */
enum eq_way {
  EQ_PER_STEP,       /* none, ddp, zero 1: ranks' sums over micro-batches, then ranks */
  EQ_PER_MICROBATCH, /* zero 2 and 3: ranks of each micro-batch, then micro-batches */
  EQ_MASTER,         /* dp: as PER_STEP, with each whole micro-batch dealt to the ranks */
};

typedef struct eq_optimizer {
  const char* name;
  double learning_rate, weight_decay, momentum, beta1, beta2, epsilon;
  int warmup_steps;
} eq_optimizer;

typedef struct eq_setting {
  enum eq_way way;
  int ranks, tensor, batch, microbatches;
  int pipeline;         /* ranks of the pipeline axis; 1: no pipeline */
  const char* schedule; /* of the pipeline */
  int chunks;           /* stages of a pipeline rank */
  eq_optimizer optimizer;
} eq_setting;

/* Parameters after so many steps, and the loss of each. */
void eq_reference(const eq_setting* e, int steps, float* params, double* losses);

#endif
