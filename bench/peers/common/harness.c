/* harness.c: the loop around a peer's call. Each size is checked once against the expected result, warmed up, and
 * timed back to back for about the seconds asked; all ranks agree on the number of calls through the slowest of them.
 */
#define _GNU_SOURCE
#include "harness.h"

#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MOST_CALLS = 20000, MOST_BATCH = 1250 };

typedef struct job {
  const bench_peer* peer;
  const struct kind* kind;
  bench_run run;
  bench_call call;
  double seconds;
  int fewest;    /* calls of a size */
  double* times; /* of all ranks: [MOST_CALLS + MOST_BATCH] each */
  double mine[MOST_BATCH];
} job;

/* What an operation leaves at element i of its result; NULL: nothing to check. */
typedef float (*expected)(const bench_call* call, size_t i);

/* The operations. parted: the bytes are those of all ranks' parts together; one_part: the result is one of them;
 * halves: one call is two messages. */
typedef struct kind {
  const char* name;
  expected result;
  int parted, one_part, halves;
} kind;

void bench_fail(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  fprintf(stderr, "bench: ");
  vfprintf(stderr, format, arguments);
  fprintf(stderr, "\n");
  va_end(arguments);
  exit(1);
}

/* Small integers, so that sums are exact. */
static float input(int rank, size_t i) {
  return (float)(i % 251 + (size_t)rank);
}

static float sum_of_inputs(int ranks, size_t i) {
  float sum = 0;
  for (int rank = 0; rank < ranks; ++rank) sum += input(rank, i);
  return sum;
}

static float of_allreduce(const bench_call* call, size_t i) {
  return sum_of_inputs(call->ranks, i);
}

static float of_reduce_scatter(const bench_call* call, size_t i) {
  return sum_of_inputs(call->ranks, (size_t)call->rank * call->part + i);
}

static float of_allgather(const bench_call* call, size_t i) {
  return input((int)(i / call->part), i);
}

static float of_root(const bench_call* call, size_t i) {
  (void)call;
  return input(0, i);
}

/* What the rank itself puts into `source`. */
static float of_source(const bench_call* call, size_t i) {
  return input(call->rank, i);
}

static float of_alltoall(const bench_call* call, size_t i) {
  return input((int)(i / call->part), (size_t)call->rank * call->part + i % call->part);
}

static float of_scatter(const bench_call* call, size_t i) {
  return input(0, (size_t)call->rank * call->part + i);
}

static float of_sendrecv(const bench_call* call, size_t i) {
  return input(call->rank & ~1, i);
}

static const kind kinds[] = {
    {"allreduce", of_allreduce, 0, 0, 0}, {"reduce_scatter", of_reduce_scatter, 1, 1, 0},
    {"allgather", of_allgather, 1, 0, 0}, {"alltoall", of_alltoall, 1, 0, 0},
    {"broadcast", of_root, 0, 0, 0},      {"reduce", of_allreduce, 0, 0, 0},
    {"gather", of_allgather, 1, 0, 0},    {"scatter", of_scatter, 1, 1, 0},
    {"sendrecv", of_sendrecv, 0, 0, 1},   {"barrier", NULL, 0, 0, 0},
    {"memcpy", of_source, 0, 0, 0},
};

static const kind* find_kind(const char* name) {
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; ++i)
    if (!strcmp(kinds[i].name, name)) return &kinds[i];
  bench_fail("--operation %s: not known", name);
}

static bench_run find_run(const bench_peer* peer, const char* name) {
  for (const bench_operation* o = peer->operations; o->name; ++o)
    if (!strcmp(o->name, name)) return o->run;
  bench_fail("--operation %s: this peer has none", name);
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int ascending(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

/* Times `calls` calls; the times of all ranks go behind the `filled` ones. Seconds they took on the slowest rank. */
static double time_calls(job* j, int calls, size_t filled) {
  double* all = j->times + filled;
  double begin = now(), slowest = 0;
  for (int i = 0; i < calls; ++i) {
    j->run(&j->call);
    const double end = now();
    j->mine[i] = end - begin;
    begin = end;
  }
  j->peer->gather(j->mine, all, (size_t)calls);
  for (int rank = 0; rank < j->call.ranks; ++rank) {
    double sum = 0;
    for (int i = 0; i < calls; ++i) sum += all[(size_t)rank * (size_t)calls + (size_t)i];
    if (sum > slowest) slowest = sum;
  }
  return slowest;
}

/* Calls of one batch, a part of the seconds asked by the median of the `n` times just taken. */
static int batch_for(const job* j, size_t n) {
  qsort(j->times, n, sizeof *j->times, ascending);
  const double calls = j->seconds / 8 / j->times[n / 2];
  const int least = (j->fewest + 2) / 3;
  return calls < least ? least : calls > MOST_BATCH ? MOST_BATCH : (int)calls;
}

/* Fills j->times and returns the calls made. Batches end it by what has passed: one estimate of the time of a call is
 * worth little on a machine that others use too. */
static int time_batches(job* j) {
  const size_t ranks = (size_t)j->call.ranks;
  int batch = 2, calls = 0;
  double elapsed = 0;
  for (int warm = 0; warm < 3; ++warm) {
    time_calls(j, batch, 0);
    batch = batch_for(j, (size_t)batch * ranks);
  }
  do {
    elapsed += time_calls(j, batch, (size_t)calls * ranks);
    calls += batch;
  } while (calls < j->fewest || (elapsed < j->seconds && calls + batch <= MOST_CALLS));
  return calls;
}

static void check_result(job* j) {
  const bench_call* c = &j->call;
  for (size_t i = 0; i < c->count; ++i) {
    c->data[i] = input(c->rank, i);
    ((float*)c->source)[i] = input(c->rank, i);
  }
  const float* result = j->run(c);
  if (!j->kind->result || !result) return;
  const size_t n = j->kind->one_part ? c->part : c->count;
  for (size_t i = 0; i < n; ++i)
    if (result[i] != j->kind->result(c, i))
      bench_fail("%s of %zu elements, rank %d: element %zu is %g, expected %g", j->kind->name, c->count, c->rank, i,
                 (double)result[i], (double)j->kind->result(c, i));
  memset(c->data, 0, c->count * sizeof(float)); /* sums stay zero, however many calls follow */
}

static void print_line(job* j, size_t bytes, int calls) {
  const size_t n = (size_t)calls * (size_t)j->call.ranks;
  const double unit = j->kind->halves ? 5e5 : 1e6;
  double sum = 0;
  for (size_t i = 0; i < n; ++i) sum += j->times[i];
  qsort(j->times, n, sizeof *j->times, ascending);
  printf("%s %d %zu %d %.3f %.3f %.3f %.3f %.3f\n", j->kind->name, j->call.ranks, bytes, calls, unit * j->times[n / 2],
         unit * j->times[n * 99 / 100], unit * sum / (double)n, unit * j->times[0], unit * j->times[n - 1]);
  fflush(stdout);
}

/* Measures one size; one that does not divide among the ranks is left out. */
static void measure(job* j, size_t bytes) {
  bench_call* c = &j->call;
  c->count = bytes / sizeof(float);
  c->part = c->count / (size_t)c->ranks;
  if (j->kind->parted && (c->part == 0 || c->part * (size_t)c->ranks != c->count)) return;
  check_result(j);
  const int calls = time_batches(j);
  if (c->rank == 0) print_line(j, bytes, calls);
}

static const char* find_option(int argc, char** argv, const char* name) {
  for (int i = 1; i + 1 < argc; ++i)
    if (!strcmp(argv[i], name)) return argv[i + 1];
  return NULL;
}

static const char* option(int argc, char** argv, const char* name) {
  const char* found = find_option(argc, argv, name);
  if (found) return found;
  bench_fail("%s is missing: --ranks N --operation NAME --bytes A,B,... --seconds S --pin 0|1", name);
}

static size_t largest_of(const char* sizes) {
  size_t largest = 64;
  for (char* end = (char*)sizes - 1; end == (char*)sizes - 1 || *end == ',';) {
    const size_t bytes = strtoull(end + 1, &end, 10);
    if (bytes > largest) largest = bytes;
  }
  return largest;
}

/* Page-aligned and touched, as a caller's long-lived buffer is; kept until the end. */
static float* buffer(const bench_peer* peer, size_t bytes) {
  void* p = peer->buffer ? peer->buffer(bytes) : NULL;
  if (!p && posix_memalign(&p, 4096, bytes)) bench_fail("no memory for %zu bytes", bytes);
  memset(p, 0, bytes);
  return p;
}

/* A scheduler that groups by session gives each session the same share of a busy machine. Some launchers start a
 * session per rank and some one for all; here each rank has its own. Not where ranks share cores: giving way reaches
 * only those of the same session, so what the launcher did is part of what is measured. */
static void own_session(void) {
  if (setsid() >= 0 || getsid(0) == getpid()) return;
  setpgid(0, getpgid(getppid())); /* the leader of a process group may not start a session */
  if (setsid() < 0) fprintf(stderr, "bench: a rank shares its session\n");
}

/* One core per rank, alike for every peer: else two ranks may share a core while another idles.
 * The calling thread only; threads that a peer has started stay free. */
static void pin(int rank) {
  cpu_set_t core;
  CPU_ZERO(&core);
  CPU_SET((unsigned)rank, &core);
  sched_setaffinity(0, sizeof core, &core);
}

int bench_main(const bench_peer* peer, int argc, char** argv) {
  const char* name = option(argc, argv, "--operation");
  const char* sizes = option(argc, argv, "--bytes");
  const int wanted = atoi(option(argc, argv, "--ranks")), pinned = atoi(option(argc, argv, "--pin"));
  const char* fewest = find_option(argc, argv, "--fewest");
  static job j;
  j = (job){.peer = peer,
            .kind = find_kind(name),
            .run = find_run(peer, name),
            .seconds = atof(option(argc, argv, "--seconds")),
            .fewest = fewest ? atoi(fewest) : 15};
  peer->join(&argc, &argv, wanted, &j.call.rank, &j.call.ranks);
  if (j.call.ranks != wanted) bench_fail("--ranks %d, but %d joined", wanted, j.call.ranks);
  const int crowded = j.call.ranks > sysconf(_SC_NPROCESSORS_ONLN);
  if (!crowded) own_session();
  if (!crowded && pinned) pin(j.call.rank);
  j.call.data = buffer(peer, largest_of(sizes));
  j.call.source = buffer(peer, largest_of(sizes));
  j.times = calloc((size_t)j.call.ranks * (MOST_CALLS + MOST_BATCH), sizeof *j.times);
  if (!j.times) bench_fail("no memory for the times");
  for (const char* s = sizes;; ++s) {
    char* end = NULL;
    measure(&j, strtoull(s, &end, 10));
    if (*end != ',') break;
    s = end;
  }
  free(j.times);
  peer->leave();
  return 0;
}
