/* harness.h: what every peer's bench program shares, so that all take the same command line, time the same way, check
 * their results alike and print the same lines. It knows no library: a peer says how its ranks join, how they gather
 * numbers, and has one row per operation. A new operation is a row in harness.c and a row in each peer that has it. */
#ifndef BENCH_PEERS_HARNESS_H
#define BENCH_PEERS_HARNESS_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One call to be timed: f32 elements, in place, sum, root 0.
 *   data   [count] for allreduce, reduce, broadcast and sendrecv; [ranks][part] for the others, where the rank's own
 *          input of an allgather or a gather is data + rank * part
 *   source [count], for an operation that is not in place (memcpy, alltoall) */
typedef struct bench_call {
  float* data;
  const float* source;
  size_t count, part;
  int rank, ranks;
} bench_call;

/* Runs it once and returns where the result lies, NULL where a rank has none. sendrecv is there and back between rank
 * and rank ^ 1, even first. */
typedef float* (*bench_run)(const bench_call* call);

typedef struct bench_operation {
  const char* name;
  bench_run run;
} bench_operation;

typedef struct bench_peer {
  /* Joins the ranks; a peer without a launcher forks `wanted` of them. */
  void (*join)(int* argc, char*** argv, int wanted, int* rank, int* ranks);
  /* all[ranks][count] = mine[count] of each rank. */
  void (*gather)(double* mine, double* all, size_t count);
  void (*leave)(void);
  /* A buffer for the calls, page-aligned; NULL: the harness's own, private to the process. */
  float* (*buffer)(size_t bytes);
  const bench_operation* operations; /* ends with a NULL name */
} bench_peer;

/* Takes --ranks N --operation NAME --bytes A,B,... --seconds S --pin 0|1 [--fewest CALLS]; prints, on rank 0, per size:
 * operation ranks bytes calls median p99 mean min max, times in microseconds of all ranks' calls together. */
int bench_main(const bench_peer* peer, int argc, char** argv);

/* Prints the message and ends the process. */
void bench_fail(const char* format, ...) __attribute__((format(printf, 1, 2), noreturn));

#ifdef __cplusplus
}
#endif

#endif
