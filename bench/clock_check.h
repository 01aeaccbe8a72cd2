/* clock_check.h: what benchmarks share: the time, and an end with the reason where a call fails. */
#ifndef BENCH_CLOCK_CHECK_H
#define BENCH_CLOCK_CHECK_H

#include <errno.h>
#include <gsel/error.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* Seconds of a clock that is never set. */
static inline double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static inline void check(gsel_status status, gsel_error* const* err) {
  char text[1024];
  if (!status) return;
  gsel_error_format(err ? *err : NULL, text, sizeof text);
  fprintf(stderr, "%s: %s\n", program_invocation_short_name, text);
  exit(1);
}

#endif
