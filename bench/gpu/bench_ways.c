/* bench_ways.c TEXT LAYERS,WIDTH,HEADS,CONTEXT[,cublaslt] STEPS CONFIG...: training steps of examples/gpt on a GPU
 * under several configurations, in turns of STEPS steps, the first of which the others are compared with. Prints a row
 * of a table for each: milliseconds of a step, their ratio to those of the first, memory of the device and of the host
 * in MB, loss of the last step. Exits with 1 where that is not near the first one's, with 77 where there is no card or
 * no cuBLASLt. */
#define _GNU_SOURCE
#include <libgen.h>
#include <math.h>
#include <stdlib.h>

#include "clock_check.h"
#include "trained.h"

enum { ROUNDS = 7, MOST_WAYS = 8 };

struct way {
  struct trained own;
  const char* name;
  double seconds[ROUNDS], ratio[ROUNDS], loss;
};

static int by_value(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

/* Most at once, of parts that are in offload memory, or of the others. */
static double megabytes(const struct way* w, int offloaded) {
  gsel_memory_part part;
  double bytes = 0;
  gsel_memory_part_init(&part, sizeof part);
  for (int32_t i = 0; i < gsel_trainer_memory_count(w->own.trainer); ++i)
    if (gsel_trainer_memory(w->own.trainer, i, &part, NULL) == GSEL_OK && !part.offloaded == !offloaded)
      bytes += (double)part.peak_bytes;
  return bytes / 1e6;
}

static void print_row(struct way* w) {
  qsort(w->seconds, ROUNDS, sizeof *w->seconds, by_value);
  qsort(w->ratio, ROUNDS, sizeof *w->ratio, by_value);
  const int m = ROUNDS / 2;
  printf("| %s | %.3f (%.3f to %.3f) | %.3f (%.3f to %.3f) | %.1f | %.1f | %.4f |\n", w->name, w->seconds[m] * 1e3,
         w->seconds[0] * 1e3, w->seconds[ROUNDS - 1] * 1e3, w->ratio[m], w->ratio[0], w->ratio[ROUNDS - 1],
         megabytes(w, 0), megabytes(w, 1), w->loss);
}

/* Ways of one precision differ by rounding at most. */
static int is_near(const struct way* w, const struct way* first) {
  const double difference = fabs(w->loss - first->loss) / fabs(first->loss);
  const double most = w->own.sizes.dtype == first->own.sizes.dtype ? 1e-3 : 5e-2;
  if (difference < most) return 1;
  fprintf(stderr, "bench_ways: the loss of \"%s\" differs from that of \"%s\" by %.1e; expected less than %.0e\n",
          w->name, first->name, difference, most);
  return 0;
}

int main(int argc, char** argv) {
  static struct way ways[MOST_WAYS];
  const int n = argc - 4, steps = argc > 3 ? atoi(argv[3]) : 0;
  struct gpt_sizes sizes = {0};
  if (n < 1 || n > MOST_WAYS || steps < 1 || trained_sizes(&sizes, argv[2])) {
    fprintf(stderr, "usage: bench_ways TEXT LAYERS,WIDTH,HEADS,CONTEXT[,cublaslt] STEPS CONFIG...\n");
    return 2;
  }
  for (int i = 0; i < n; ++i) {
    ways[i].own.sizes = sizes;
    ways[i].name = basename(argv[4 + i]);
    trained_open(&ways[i].own, argv[4 + i], argv[1]);
  }
  double* losses = calloc((size_t)steps, sizeof *losses);
  for (int round = -1; round < ROUNDS; ++round)
    for (int i = 0; i < n; ++i) {
      const double seconds = trained_steps(&ways[i].own, steps, losses);
      ways[i].loss = losses[steps - 1];
      if (round < 0) continue;
      ways[i].seconds[round] = seconds;
      ways[i].ratio[round] = seconds / ways[0].seconds[round];
    }
  int are_near = 1;
  for (int i = 0; i < n; ++i) {
    print_row(&ways[i]);
    are_near &= is_near(&ways[i], &ways[0]);
  }
  for (int i = 0; i < n; ++i) trained_close(&ways[i].own);
  free(losses);
  return !are_near;
}
