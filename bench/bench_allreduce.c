/* bench_allreduce: time of one allreduce by size, in the manner of nccl-tests: in place, f32, sum, back to back.
 * Run under `gsel run -n N`. Prints medians and 99th percentiles of all ranks' calls, and algorithm bandwidth
 * bytes / time. Beside it, what the machine's memcpy does with all ranks at once. */
#define _POSIX_C_SOURCE 200809L
#include <gsel/gsel.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_CALLS = 20000 };

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int ascending(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

/* Prints what went wrong and leaves. */
static void check(gsel_status status, gsel_error* const* err) {
  if (!status) return;
  fprintf(stderr, "bench_allreduce: %s\n", gsel_error_message(*err).data);
  exit(1);
}

/* Seconds of `calls` allreduces, sorted, over all ranks: times[world * calls]. */
static void measure(gsel_comm* comm, float* data, size_t count, int calls, double* times) {
  gsel_error* err = NULL;
  const int32_t world = gsel_comm_world_size(comm);
  double* mine = times + (size_t)calls * (size_t)gsel_comm_rank(comm);
  check(gsel_barrier(comm, &err), &err);
  for (int i = 0; i < calls; ++i) {
    const double begin = now();
    check(gsel_allreduce(comm, data, data, count, GSEL_F32, GSEL_SUM, &err), &err);
    mine[i] = now() - begin;
  }
  check(gsel_allgather(comm, mine, times, (size_t)calls, GSEL_F64, &err), &err);
  qsort(times, (size_t)calls * (size_t)world, sizeof *times, ascending);
}

/* Seconds of one memcpy of `bytes`, median of `calls`, with all ranks copying. */
static double measure_memcpy(gsel_comm* comm, char* to, const char* from, size_t bytes, int calls, double* times) {
  gsel_error* err = NULL;
  check(gsel_barrier(comm, &err), &err);
  for (int i = 0; i < calls; ++i) {
    const double begin = now();
    memcpy(to, from, bytes);
    times[i] = now() - begin;
  }
  qsort(times, (size_t)calls, sizeof *times, ascending);
  return times[calls / 2];
}

int main(void) {
  gsel_error* err = NULL;
  gsel_comm* comm = NULL;
  check(gsel_comm_init(NULL, &comm, &err), &err);
  const int32_t rank = gsel_comm_rank(comm), world = gsel_comm_world_size(comm);
  const size_t largest = (size_t)64 << 20;
  float* data = calloc(1, largest);
  char* copy = calloc(1, largest);
  double* times = malloc(sizeof *times * MAX_CALLS * (size_t)world);
  if (!data || !copy || !times) return 1;
  memset(copy, 1, largest);

  if (rank == 0)
    printf("| bytes | median us | p99 us | GB/s | memcpy us, all ranks at once |\n|---|---|---|---|---|\n");
  static const size_t sizes[] = {8, 64, 1024, 4096, 65536, 262144, 1 << 20, 16 << 20, 64 << 20};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; ++i) {
    const size_t bytes = sizes[i];
    const int calls = bytes <= 4096 ? MAX_CALLS : bytes <= 262144 ? 2000 : bytes <= (1u << 20) ? 500 : 30;
    measure(comm, data, bytes / sizeof *data, calls / 10, times);
    measure(comm, data, bytes / sizeof *data, calls, times);
    const size_t n = (size_t)calls * (size_t)world;
    const double median = times[n / 2], p99 = times[n * 99 / 100];
    const double plain = measure_memcpy(comm, (char*)data, copy, bytes, calls, times);
    memset(data, 0, bytes);
    if (rank == 0)
      printf("| %zu | %.2f | %.2f | %.2f | %.2f |\n", bytes, 1e6 * median, 1e6 * p99, 1e-9 * (double)bytes / median,
             1e6 * plain);
  }
  free(times);
  free(copy);
  free(data);
  gsel_comm_free(comm);
  return 0;
}
