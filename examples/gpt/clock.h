/* clock.h: seconds since some moment, and seconds of processor time of this process, over all its threads. */
#ifndef GPT_CLOCK_H
#define GPT_CLOCK_H

#include <time.h>

static inline double read_clock(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
static inline double now(void) {
  return read_clock(CLOCK_MONOTONIC);
}
static inline double cpu_time(void) {
  return read_clock(CLOCK_PROCESS_CPUTIME_ID);
}

#endif
