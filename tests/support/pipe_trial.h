/* support/pipe_trial.h: one trial of a pipeline without a trainer on ranks: the model of pipe_model.h under a schedule,
 * run and compared with the same computation by hand. */
#ifndef GSEL_TESTS_PIPE_TRIAL_H
#define GSEL_TESTS_PIPE_TRIAL_H

#include "support/pipe_model.h"

typedef struct pipe_trial {
  pipe_model m;
  gsel_pipeline_options options;
  int what;
  int runs;
  /* Of those that are refused. */
  gsel_status code;
  const char *text, *more; /* both are in the message */
  int odd_rank;            /* this rank alone was given `odd`; -1 none */
  pipe_model odd;
  gsel_pipeline_options odd_options;
} pipe_trial;

/* Runs to the end, all ranks alike. */
pipe_trial trial_of(int layers, const char* schedule, int microbatches, int samples);

/* ---- outcomes ---- */

void expect_equal_to_by_hand(rank_run* run);

enum { N_SCHEDULES = 9 };
extern const char* const kSchedules[N_SCHEDULES];

int schedule_exists(const char* name, int ranks, int microbatches);

#endif
