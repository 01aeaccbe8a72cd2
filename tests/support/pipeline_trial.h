/* support/pipeline_trial.h: the long model trained over a pipeline, and its outcome, compared bit for bit with the
 * outcome of another trial. */
#ifndef GSEL_TESTS_PIPELINE_TRIAL_H
#define GSEL_TESTS_PIPELINE_TRIAL_H

#include "support/counts.h"
#include "support/long_model.h"
#include "support/ranks.h"

enum { PIPELINE_STEPS = 3 };

typedef struct pipeline_outcome {
  float params[LONG_ELEMS];
  double loss[PIPELINE_STEPS], weight[PIPELINE_STEPS], norm[PIPELINE_STEPS];
  double evaluated;
  double largest;
  gsel_comm_count sent, tied; /* of all steps */
} pipeline_outcome;

typedef struct pipeline_trial {
  const char* config;
  const char* fail_in; /* a layer fails in the last step */
  int32_t fail_on_rank;
  int evaluates;
  const pipeline_outcome* expected; /* NULL: record alone */
  pipeline_outcome* out;            /* shared memory, [world_size] */
} pipeline_trial;

/* The objects of a rank; released in reverse. */
typedef struct pipeline_session {
  long_model m;
  gsel_comm* comm;
  gsel_config* config;
  gsel_model* model;
  gsel_trainer* trainer;
} pipeline_session;

/* Of the trial that is the run's user data. */
gsel_status open_pipeline(rank_run* run, pipeline_session* s, gsel_error** err);
void close_pipeline(pipeline_session* s);
void train_pipeline(rank_run* run);
pipeline_outcome* pipeline_outcomes(void);
void free_pipeline_outcomes(pipeline_outcome* o);

#define PIPELINE_TRAIN                                                                                                \
  "[train]\noptimizer = \"sign_sgd\"\nlearning_rate = 1.0\nweight_decay = 0.0\nseed = 5\nbatch = %d\nmicrobatches = " \
  "%d\n"

/* One rank, one micro-batch, no strategy: f32 must hold every sum exactly, or equality would prove nothing. */
pipeline_outcome* pipeline_reference(int batch, const char* more);

#endif
