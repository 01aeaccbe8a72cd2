/* support/post_validation_trial.h: the long model trained over a pipeline with optimistic steps, and the outcome of
 * each step, compared bit for bit with the outcome of the same pipeline without them. */
#ifndef GSEL_TESTS_VALIDATION_TRIAL_H
#define GSEL_TESTS_VALIDATION_TRIAL_H

#include "support/counts.h"
#include "support/pipeline_trial.h"

enum { VALIDATION_STEPS = 6 };

/* Of each step, in f64 as reported. Norm and skipped are stored with their step. */
typedef struct post_validation_outcome {
  float params[LONG_ELEMS];
  double loss[VALIDATION_STEPS], weight[VALIDATION_STEPS], norm[VALIDATION_STEPS];
  double scale[VALIDATION_STEPS], rate[VALIDATION_STEPS], evaluated;
  int32_t skipped[VALIDATION_STEPS];
  /* The differences of the two. */
  int32_t known[VALIDATION_STEPS], restarts, inputs;
  gsel_comm_count norms, overflows;
} post_validation_outcome;

typedef struct post_validation_trial {
  char config[1024];
  int asks_between;             /* parameters are read and a batch is evaluated between steps */
  int own_optimizer;            /* the embedder's, which poisons gradients */
  int leaves;                   /* frees the trainer while the last step is open */
  int32_t dies;                 /* this rank, when step 2 asks it for an input; -1: none */
  post_validation_outcome* out; /* shared memory, [world_size] */
} post_validation_trial;

/* The objects of a rank; released in reverse. */
typedef struct post_validation_session {
  long_model m;
  gsel_comm* comm;
  gsel_config* config;
  gsel_model* model;
  gsel_trainer* trainer;
  int64_t step; /* under way, as its driver counts */
  int32_t inputs, dies;
} post_validation_session;

post_validation_outcome* post_validation_outcomes(void);
void free_validation_outcomes(post_validation_outcome* o);
gsel_status open_validation(rank_run* run, post_validation_session* s, gsel_error** err);
void close_validation(post_validation_session* s);

void train_and_validate(rank_run* run); /* of a post_validation_trial */

#endif
