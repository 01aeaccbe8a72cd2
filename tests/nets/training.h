/* nets/training.h: what the parts of test_training.c share: a rank's communicators, models, trainers and pipelines,
 * each with the state that the calls before have left it in. */
#ifndef GSEL_TESTS_NETS_TRAINING_H
#define GSEL_TESTS_NETS_TRAINING_H

#include "nets/machine.h"
#include "support/pipe_model.h"
#include "support/step_model.h"

enum { GROUNDS = 2, MODELS = 2, TRAININGS = 3, PIPELINES = 2, PIECES = 8 };

/* A communicator of all ranks. A trainer that fails breaks it under all others of it. */
typedef struct ground {
  gsel_comm* comm;
  int broken;
  int joins;
} ground;

/* A description: pieces are added in one order, so that their number is all there is to know. */
typedef struct description {
  gsel_model* model;
  int pieces, finished;
} description;

enum { BY_DEFAULT, BY_DDP, BY_ZERO_1, BY_ZERO_2, BY_ZERO_3, BY_DP, BY_PP, STRATEGIES };
enum { NO_FAULT, FAULT_INPUT, FAULT_FORWARD, FAULT_LOSS, FAULT_BACKWARD, NO_SAMPLES };
enum { IDLE, IN_STEP, IN_EVALUATION };

/* What a step or an evaluation must tell. */
typedef struct numbers {
  int64_t step;
  double loss_sum, weight;
} numbers;

typedef struct training {
  gsel_trainer* trainer;
  ground* on;
  int broken, unaware; /* no step can follow; and this rank was done before another failed */
  int strategy, batch, pull_only, unwritable;
  int own_optimizer;
  /* The model's arithmetic by hand. */
  float params[STEP_PARAMS][STEP_WIDTH];
  int64_t steps;
  numbers last;
  /* What is under way. */
  int way;
  int64_t first_sample;
  int begun, at_once;   /* the library knows of it; pulled in one call of the net */
  gsel_work work;       /* handed out where its ticket is not 0 */
  int evaluation_waits; /* pulled, and its report not read */
  numbers evaluation;
  int had_samples; /* in the last step */
  /* What the callbacks are to do, and what they saw. */
  int fault, with; /* which, on which rank */
  int infers;
  int64_t asked;   /* samples */
  const char* saw; /* what was wrong, or NULL */
} training;

typedef struct piping {
  gsel_pipeline* pipeline;
  ground* on;
  pipe_model m;
  int microbatches, samples;
  int broken, unaware; /* unaware: this rank was done before another failed */
  int64_t runs[2];     /* forward alone, and with backward */
} piping;

typedef struct holdings {
  ground grounds[GROUNDS];
  description models[MODELS];
  training trainings[TRAININGS];
  piping pipings[PIPELINES];
  training* now;   /* whose callbacks are called */
  step_model line; /* what every description has for its callbacks */
} holdings;

static inline holdings* mine(const player* p) {
  return (holdings*)p->own;
}

static inline int is_odd(const player* p, const op* o) {
  return o->a % p->run.world_size == p->run.rank;
}

/* Whether the status is one of two, with an error that fits; takes over err. Its text is kept in `text`. */
int came_as(player* p, const char* call, gsel_status want, gsel_status or_else, gsel_status got, gsel_error* err,
            char text[300]);

/* All that stands on a communicator that is broken goes with it. */
void ground_fall(player* p, ground* g);
/* Whether something is under way on it, which then alone uses it. */
int ground_is_busy(const player* p, const ground* g);

static inline void rest(training* t) {
  t->way = IDLE;
  t->begun = 0;
  t->work.ticket = 0;
  t->fault = NO_FAULT;
}

void play_model(player* p, description* d, const op* o);
/* A description with all pieces but those that the flaw concerns; broken off with the first error. */
gsel_status describe(player* p, gsel_model* model, int first, int end, int other, gsel_error** err);

void play_training(player* p, training* t, const op* o);
void training_create(player* p, training* t, const op* o);
void training_pull(player* p, training* t, const op* o);
void play_piping(player* p, piping* q, const op* o);

/* ---- of trainers ---- */

gsel_status line_data(const gsel_data_request* r, void* user); /* user: the player */
gsel_status line_forward(const gsel_call* c, void* user);      /* user: the step_model, whose user is the player */
gsel_status line_backward(const gsel_call* c, void* user);
gsel_status loss_forward(const gsel_call* c, void* user);
gsel_status loss_backward(const gsel_call* c, void* user);

/* The samples that this rank is asked for: of a batch, from 0. */
gsel_range samples_asked(const player* p, const training* t, int32_t rank);
/* The batch from first_sample on, by hand; with `updates` also the step on it. */
numbers batch_by_hand(player* p, training* t, int64_t first_sample, int updates);
/* What every step and evaluation begins with and what its success must show. */
void batch_begins(player* p, training* t, int way, int64_t first_sample);
void batch_ended(player* p, training* t, const gsel_step_report* r);
void batch_failed(training* t); /* and the communicator with it */
int faulty(const player* p, const training* t);
/* What ranks may answer beside GSEL_ERR_ABORTED when another fails: those of a pipeline may be done before. */
gsel_status fate_of_others(const training* t);
/* What a call answers that needs the other ranks of a trainer that is broken. */
void came_broken(player* p, training* t, const char* call, gsel_status got, gsel_error* err);
void compare_numbers(player* p, const char* call, const gsel_step_report* r, const numbers* n);
gsel_status work_off(player* p, const gsel_work* work);

#endif
