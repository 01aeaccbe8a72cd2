/* support/trials.h: worlds of three ranks, one of which is killed or stopped by GSEL_FAULT or a signal. The others must
 * get the right error about that rank in bounded time, and leave nothing in their process. Many worlds run at the same
 * time, because a world with a stopped rank only waits. */
#ifndef GSEL_TESTS_TRIALS_H
#define GSEL_TESTS_TRIALS_H

#include "support/every_call.h"

#define RANKS 3
#define FAULTY_CALL 3 /* of messages 3 or 4: a rank makes two calls for each round of the ring */

enum { N_STEPS = 10, N_SIZES = 4, N_ACTIONS = 4 };
extern const char* const steps[N_STEPS];

/* In f32: in the line, beside it, staged in one chunk, and in several or read across processes. */
extern const size_t sizes[N_SIZES];

typedef enum { KILL, STOP, DELAY, CORRUPT } action;
extern const char* const actions[N_ACTIONS];

typedef struct trial {
  action what;
  int step, call;
  int32_t victim;
  gsel_collective_kind kind;
  size_t count;
  int random; /* no GSEL_FAULT: the parent sends a signal some time after all have started */
} trial;

double seconds(void);
int open_descriptors(void);
int shared_mappings(void);

/* Runs trials, several worlds at a time; struck[i], where given: whether trial i struck. Returns how many did. */
int run_all(const trial* trials, int n, int* struck);

#endif
