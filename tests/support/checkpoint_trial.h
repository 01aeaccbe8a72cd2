/* support/checkpoint_trial.h: trials (trainer_trial.h) that save after some steps, or load what others saved and go on:
 * they must end with the losses, parameters and numbers of a trial that never stopped. */
#ifndef GSEL_TESTS_CHECKPOINT_TRIAL_H
#define GSEL_TESTS_CHECKPOINT_TRIAL_H

#include <gsel/checkpoint.h>
#include <gsel/state.h>
#include <stdbool.h>
#include <sys/types.h>

#include "support/trainer_trial.h"

GSEL_EXTERN_C_BEGIN

enum { BEFORE = 2 };

/* An outcome, and what training would go on from after the last step. */
struct ending {
  outcome out;
  gsel_training_numbers numbers;
};
struct ending* shared_ending(void);
void free_ending(struct ending* ending);

struct going_on {
  trial t;
  const char* path;
  uint64_t* written; /* shared: bytes of tensors that all ranks wrote */
  bool in_background;
  void (*before_step)(rank_run* run, session* s, int step); /* NULL: nothing */
  struct ending* ending; /* shared: of rank 0 that never stops; expected of the others, unless it is NULL */
};

/* Bodies of ranks, whose user data is a going_on: STEPS steps; BEFORE steps and a save; a load and the rest. */
void never_stops(rank_run* run);
void save_after_some_steps(rank_run* run);
void load_and_go_on(rank_run* run);

/* Saves on threads; the bytes that all ranks wrote. */
uint64_t saved_on(int ranks, const struct going_on* what);

/* A checkpoint, verified. */
gsel_checkpoint* opened_checkpoint(const char* path);
/* Changes a bit of the byte that is so many before the end of a file. */
void flip_bit(const char* path, off_t from_end);
/* Numbers, tensors and values are equal, bit for bit. */
void same_state(gsel_checkpoint* a, gsel_checkpoint* b);

GSEL_EXTERN_C_END

#endif
