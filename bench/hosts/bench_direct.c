/* bench_direct.c: gsel_allreduce over an MPI beside MPI_Allreduce, in one process and on the same ranks: blocks of
 * calls of either take turns, so that a drift of the machine meets both. The program initialises MPI, with the level
 * that gsel asks for where it does so itself, and gsel finds it at work. Rank 0 prints a line for each size: bytes, and
 * median, least and most of the blocks' mean microseconds a call, for gsel and for MPI. */
#include <gsel/gsel.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { kMostRounds = 101 };

static gsel_comm* comm;

static double now_us(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static void end(const char* what, const char* why) {
  fprintf(stderr, "bench_direct: %s: %s\n", what, why);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

static void by_gsel(float* data, size_t count) {
  gsel_error* err = NULL;
  if (gsel_allreduce(comm, data, data, count, GSEL_F32, GSEL_SUM, &err)) end("gsel", gsel_error_message(err).data);
}

static void by_mpi(float* data, size_t count) {
  MPI_Allreduce(MPI_IN_PLACE, data, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

typedef void (*call_fn)(float* data, size_t count);

/* Mean of a block on the rank that took longest. */
static double block(call_fn call, float* data, size_t count, int calls) {
  double mine, most;
  MPI_Barrier(MPI_COMM_WORLD);
  const double began = now_us();
  for (int i = 0; i < calls; ++i) call(data, count);
  mine = (now_us() - began) / calls;
  MPI_Allreduce(&mine, &most, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return most;
}

static int by_size(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

static void check(call_fn call, float* data, size_t count, int rank, int ranks) {
  for (size_t i = 0; i < count; ++i) data[i] = (float)(rank + 1) + (float)(i % 7);
  call(data, count);
  for (size_t i = 0; i < count; ++i)
    if (data[i] != (float)(ranks * (ranks + 1) / 2) + (float)ranks * (float)(i % 7)) end("a sum", "is wrong");
  memset(data, 0, count * sizeof *data);
}

static void run(size_t bytes, int rounds, double seconds, int rank, int ranks) {
  static const call_fn calls[] = {by_gsel, by_mpi};
  double took[2][kMostRounds];
  const size_t count = bytes / sizeof(float);
  float* data = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  if (!data) end("memory", "there is none");
  for (int k = 0; k < 2; ++k) check(calls[k], data, count, rank, ranks);
  const double first = block(by_mpi, data, count, 5);
  double wanted = seconds * 1e6 / (2 * rounds) / (first + 1);
  MPI_Bcast(&wanted, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
  const int n = wanted < 2 ? 2 : wanted > 20000 ? 20000 : (int)wanted;
  for (int k = 0; k < 2; ++k) block(calls[k], data, count, n);
  for (int r = 0; r < rounds; ++r)
    for (int k = 0; k < 2; ++k) took[(k + r) % 2][r] = block(calls[(k + r) % 2], data, count, n);
  free(data);
  if (rank != 0) return;
  printf("%zu", bytes);
  for (int k = 0; k < 2; ++k) {
    qsort(took[k], (size_t)rounds, sizeof took[k][0], by_size);
    printf(" %.2f %.2f %.2f", took[k][rounds / 2], took[k][0], took[k][rounds - 1]);
  }
  printf("\n");
  fflush(stdout);
}

/* bench_direct ROUNDS SECONDS_EACH BYTES...; BENCH_ORDER=tree: sums are in the order of a tree. */
int main(int argc, char** argv) {
  int level, rank, ranks;
  gsel_error* err = NULL;
  if (argc < 4) return fprintf(stderr, "usage: bench_direct ROUNDS SECONDS_EACH BYTES...\n"), 2;
  const int rounds = atoi(argv[1]);
  if (rounds < 1 || rounds > kMostRounds) return fprintf(stderr, "bench_direct: 1 to %d rounds\n", kMostRounds), 2;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  gsel_comm_options options;
  gsel_comm_options_init(&options, sizeof options);
  const char* order = getenv("BENCH_ORDER");
  options.order = order && strcmp(order, "tree") == 0 ? GSEL_ORDER_TREE : GSEL_ORDER_RANKS;
  if (gsel_comm_init(&options, &comm, &err)) end("gsel_comm_init", gsel_error_message(err).data);
  if (gsel_comm_world_size(comm) != ranks) end("gsel", "has another world");
  for (int i = 3; i < argc; ++i) run(strtoull(argv[i], NULL, 10), rounds, strtod(argv[2], NULL), rank, ranks);
  gsel_comm_free(comm);
  MPI_Finalize();
  return 0;
}
