/* chain.h: a chain of stages over ranks that are threads of this process. Kernels sleep or compute for a given time and
 * leave their values alone, so that only gsel and the machine decide how long a run takes. */
#ifndef BENCH_CHAIN_H
#define BENCH_CHAIN_H

#include <gsel/gsel.h>

enum { CHAIN_MOST_RANKS = 8, CHAIN_MOST_STAGES = 16 };

/* Times of one stage for one micro-batch: seconds to sleep, or turns of a loop to compute (chain_turns_per_second). */
struct chain {
  const char* schedule;
  int ranks, stages, microbatches;
  int computes;
  int in_a_row; /* runs follow each other; else all ranks meet before each */
  double forward, backward_input, backward_weight;
  int64_t width; /* floats that cross a cut */
};

/*   makespan_s    from the first callback's begin to the last one's end, over all ranks
 *   period_s      from the last callback's end of the run before to that of this one; 0 of the first
 *   busiest_s     in callbacks, of the rank that was longest in them
 *   overhead_s    of the library, per instruction that is no message and no collective, of the slowest rank
 *   instruction_s of a whole run, per instruction, of the slowest rank */
struct chain_result {
  double makespan_s;
  double period_s;
  double busiest_s;
  double overhead_s;
  double instruction_s;
};

/* Runs it once to warm up, then `runs` times into results. Leaves the program with a message where that fails. */
void chain_run(const struct chain* chain, int runs, struct chain_result* results);

double chain_turns_per_second(void);

#endif
