/* support/tensor_trial.h: the small transformer of small_transformer.h trained under a mesh and strategies, and what
 * came of it, compared bit for bit with what came of another trial. Parameters are seen twice: as the kernels of an
 * evaluation get them, each rank its parts, and whole as they are read from the trainer. */
#ifndef GSEL_TESTS_TENSOR_TRIAL_H
#define GSEL_TESTS_TENSOR_TRIAL_H

#include "support/counts.h"
#include "support/ranks.h"
#include "support/small_transformer.h"

enum { TENSOR_STEPS = 3, TENSOR_KINDS = GSEL_INSTR_ALLREDUCE_PARTIAL + 1 };

typedef struct tensor_outcome {
  float params[TM_PARAMS][TM_MOST_PARAM];           /* as read */
  float noted[TM_PARAMS][TM_MOST_PARAM];            /* as kernels saw them */
  unsigned char is_noted[TM_PARAMS][TM_MOST_PARAM]; /* on this rank */
  double loss[TENSOR_STEPS], weight[TENSOR_STEPS], norm[TENSOR_STEPS];
  int32_t skipped[TENSOR_STEPS];
  double evaluated;
  double largest;
  gsel_comm_count counts[TENSOR_KINDS][GSEL_MAX_AXES];                                   /* of setup and all steps */
  gsel_comm_count setup[TENSOR_KINDS][GSEL_MAX_AXES], step[TENSOR_KINDS][GSEL_MAX_AXES]; /* forecasts */
} tensor_outcome;

typedef struct tensor_trial {
  const char* config;
  small_transformer m; /* as described */
  int steps;
  int reads_whole;                /* parameters are read from the trainer, too */
  const tensor_outcome* expected; /* NULL: record alone */
  tensor_outcome* out;            /* shared memory, [world_size] */
  gsel_status refused;            /* with `why` in the message, by every rank, before or in the first step */
  const char* why;
  int32_t other_rank; /* this one is given other_config; -1: none */
  const char* other_config;
  int differs; /* a mistake: the outcome must not be as expected */
} tensor_trial;

typedef struct tensor_session {
  small_transformer* m; /* large */
  gsel_comm* comm;
  gsel_config* config;
  gsel_model* model;
  gsel_trainer* trainer;
} tensor_session;

/* Of integers, with nothing that fails or overflows. */
tensor_trial tensor_trial_of(const char* config, tensor_outcome* out);
gsel_status open_tensor(rank_run* run, tensor_session* s, gsel_error** err);
void close_tensor(tensor_session* s);

/* What a step that is pulled hands out. */
gsel_status tensor_work(const gsel_work* work, small_transformer* m);
void train_tensor(rank_run* run);
void refuse_tensor(rank_run* run);
tensor_outcome* tensor_outcomes(void);
void free_tensor_outcomes(tensor_outcome* o);
void try_tensor(const tensor_trial* t, int n);

#define TENSOR_TRAIN                                                                                                \
  "[train]\noptimizer = \"sign_sgd\"\nlearning_rate = 1.0\nweight_decay = 0.0\nseed = 5\nbatch = %d\nmicrobatches " \
  "= %d\n"

/* One rank, one micro-batch, no strategy: f32 must hold every sum exactly, or equality would prove nothing. */
tensor_outcome* tensor_reference(const tensor_trial* like, const char* train_section);

#endif
