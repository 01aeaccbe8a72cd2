/* bench_requests: what a request costs beside the blocking call, and what it gives for it. Two ranks as processes, one
 * table for each; the ways take turns in each repetition. Prints Markdown: medians and quartiles of microseconds a call
 * over repetitions of 100 calls; a message goes there and back. */
#define _GNU_SOURCE
#include <gsel/gsel.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { WAYS = 4, CALLS = 50, REPETITIONS = 200, LARGEST = 65536 };

static const char* const ways[WAYS] = {"blocking", "start, wait", "persistent: start, wait", "start, test"};
static float x[LARGEST];

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void must(gsel_status status, gsel_error** err) {
  if (status == GSEL_OK) return;
  fprintf(stderr, "bench_requests: %s\n", *err ? gsel_error_message(*err).data : gsel_status_name(status));
  exit(1);
}

static int by_size(const void* a, const void* b) {
  const double d = *(const double*)a - *(const double*)b;
  return d < 0 ? -1 : d > 0;
}

static void call_by(int way, gsel_comm* comm, const gsel_collective* call, gsel_request* persistent) {
  gsel_error* err = NULL;
  gsel_request* request = persistent;
  int32_t done = 0;
  if (way == 0) {
    must(gsel_comm_run(comm, call, &err), &err);
    return;
  }
  must(way == 2 ? gsel_request_start(request, &err) : gsel_comm_start(comm, call, &request, &err), &err);
  if (way < 3) must(gsel_request_wait(request, &err), &err);
  while (way == 3 && !done) must(gsel_request_test(request, &done, &err), &err);
  if (way != 2) gsel_request_free(request);
}

/* Calls of one size; at[0] and at[1] take turns. */
static void measure(gsel_comm* comm, const gsel_collective at[2], double times[WAYS][REPETITIONS]) {
  gsel_error* err = NULL;
  gsel_comm* other; /* a persistent request makes calls of its communicator ask whether others are under way */
  gsel_request* persistent[2];
  must(gsel_comm_dup(comm, &other, &err), &err);
  for (int i = 0; i < 2; ++i) must(gsel_request_create(other, &at[i], &persistent[i], &err), &err);
  for (int repetition = 0; repetition < REPETITIONS; ++repetition)
    for (int way = 0; way < WAYS; ++way) {
      must(gsel_barrier(comm, &err), &err);
      const double began = now();
      for (int i = 0; i < 2 * CALLS; ++i) call_by(way, comm, &at[i % 2], persistent[i % 2]);
      times[way][repetition] = (now() - began) / (2 * CALLS) * 1e6;
    }
  for (int i = 0; i < 2; ++i) gsel_request_free(persistent[i]);
  gsel_comm_free(other);
}

static void table(gsel_comm* comm, int message) {
  static double times[WAYS][REPETITIONS];
  const int32_t rank = gsel_comm_rank(comm);
  if (rank == 0) {
    printf("| %s |", message ? "message" : "allreduce");
    for (int way = 0; way < WAYS; ++way) printf(" %s |", ways[way]);
    printf("\n|---|---|---|---|---|\n");
  }
  for (size_t count = 1; count <= LARGEST; count *= count < 16 ? 16 : 8) {
    gsel_collective at[2];
    for (int i = 0; i < 2; ++i) {
      gsel_collective_init(&at[i], sizeof at[i]);
      at[i].kind = !message ? GSEL_COLLECTIVE_ALLREDUCE : rank == i ? GSEL_COLLECTIVE_SEND : GSEL_COLLECTIVE_RECV;
      at[i].dtype = GSEL_F32;
      at[i].op = GSEL_MAX;
      at[i].send = at[i].recv = x;
      at[i].count = count;
      at[i].root = 1 - rank;
    }
    measure(comm, at, times);
    if (rank != 0) continue;
    printf("| %zu B |", count * sizeof *x);
    for (int way = 0; way < WAYS; ++way) {
      double* t = times[way];
      qsort(t, REPETITIONS, sizeof *t, by_size);
      printf(" %.3g (%.3g-%.3g) |", t[REPETITIONS / 2], t[REPETITIONS / 4], t[REPETITIONS * 3 / 4]);
    }
    printf("\n");
  }
  if (rank == 0) printf("\n");
}

static void run_rank(int32_t rank, const gsel_unique_id* id) {
  gsel_comm_options options = GSEL_COMM_OPTIONS_INIT;
  gsel_error* err = NULL;
  gsel_comm* comm;
  options.rank = rank;
  options.world_size = 2;
  options.id = id;
  must(gsel_comm_init(&options, &comm, &err), &err);
  table(comm, 0);
  table(comm, 1);
  gsel_comm_free(comm);
}

int main(void) {
  gsel_unique_id id;
  gsel_error* err = NULL;
  int status = 0;
  must(gsel_unique_id_create(&id, &err), &err);
  const pid_t child = fork();
  if (child == 0) {
    run_rank(1, &id);
    _exit(0);
  }
  run_rank(0, &id);
  waitpid(child, &status, 0);
  return status != 0;
}
