/* support/elastic_trial.h: worlds that lose ranks while the exact model trains, or the small transformer over more
 * axes. Those that are left shrink, rebind, and end with the losses and parameters of one rank that trained alone; by
 * each layer at the ends of the model every sample is seen once. The optimizer is Lion, whose sums are exact here
 * (layouts.h). */
#ifndef GSEL_TESTS_ELASTIC_TRIAL_H
#define GSEL_TESTS_ELASTIC_TRIAL_H

#include <stdbool.h>

#include "support/layouts.h"

GSEL_EXTERN_C_BEGIN

enum { STRUCK = 2, BATCH = 9, SAMPLES = STEPS * BATCH, MOST_WORLD = 8 };

/* How often a sample was seen: read; its gradient taken through the first layer; its loss computed. Of ranks that share
 * a layer on a tensor or context axis the first one counts, but for reads. */
enum { SEEN_READ, SEEN_FIRST, SEEN_LAST, N_SEEN };

/* Of a world, in memory that its ranks share. */
struct tally {
  int32_t sources[3]; /* how often state came from each GSEL_REBIND_FROM_* */
  int32_t ended;      /* who was to be struck got through */
  int32_t refused;    /* rebinds that found the state nowhere */
  char folder[64];    /* of its checkpoints */
  char place[64];     /* where ranks on several hosts meet */
  int32_t pids[MOST_WORLD];
  int32_t seen[N_SEEN][SAMPLES]; /* by sample id, in steps that were not trained again */
};

/* IN_STEP: in step STRUCK. IN_SAVE, IN_SAVE_BEGIN: in a save before it. IN_REBIND: the first victim in step STRUCK, and
 * `second` in the rebind, which is on a communicator that is joined for it, with GSEL_FAULT. IN_JOIN: `second` in that,
 * and the last ranks come new to it. */
enum strikes { IN_STEP, IN_SAVE, IN_SAVE_BEGIN, IN_REBIND, IN_JOIN };

struct change {
  trial t;
  const char* hosts; /* which ranks are on which host: "0011"; NULL: all on one */
  enum strikes strikes;
  int signal;             /* SIGKILL, or SIGSTOP: the others send SIGCONT when they have gone on */
  const char* afterwards; /* configuration of the ranks that are left, or joined; NULL: the same */
  bool has_folder;        /* of checkpoints, of which there is one of step 1 */
  bool is_last_resort;    /* the folder is given to the rebind only after one without it was refused */
  int n_victims, victims[2];
  int at;       /* callback of the step; past the last: after the step */
  int after_us; /* not negative: so long after it has begun, instead */
  int second;
  char fault[64]; /* GSEL_FAULT of second */
  bool may_miss;  /* it may strike nobody */
  int n_new;      /* IN_JOIN: ranks */
  int64_t lost;   /* most steps that may be lost */
  struct tally* tally;
};

struct change change_of(const char* config, const outcome* expected);

/* What became of several worlds. */
struct losses {
  int worlds, ended;
  int from_ranks, from_checkpoint; /* rebinds */
  int refused;
};

/* Runs worlds at the same time. The ranks that are to be struck end by SIGKILL, or with an error if they were stopped;
 * all others with the expected outcome. Adds to `sum`. */
void lose_ranks(struct change* worlds, int n, int ranks, struct losses* sum);

/* Worlds like c, each changed by `vary` with its number from 0, until who was to be struck got through. Several run at
 * the same time, because each waits more than it works. */
struct losses lose_ranks_in_turn(const struct change* c, int ranks, void (*vary)(struct change* world, int i));
/* Varies `at`: each callback. */
void at_each_callback(struct change* world, int i);

outcome* trained_alone(void);
/* m: as described, kept while ranks run. */
outcome* transformer_trained_alone(const small_transformer* m);

GSEL_EXTERN_C_END

#endif
