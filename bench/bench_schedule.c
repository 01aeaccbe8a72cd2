/* bench_schedule: making, reading and simulating large schedules. Prints one Markdown table, medians in milliseconds.
 */
#define _GNU_SOURCE
#include <gsel/gsel.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { TIMES = 9 };

static double now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

static int ascending(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

static double median(double* times) {
  qsort(times, TIMES, sizeof *times, ascending);
  return times[TIMES / 2];
}

static void must(gsel_status status, gsel_error* const* err) {
  if (status == GSEL_OK) return;
  fprintf(stderr, "bench_schedule: %s\n", gsel_error_message(*err).data);
  exit(1);
}

static void measure(const char* name, int32_t ranks, int32_t microbatches) {
  double make[TIMES], read[TIMES], simulate[TIMES], json[TIMES];
  size_t actions = 0;
  for (int i = 0; i < TIMES; ++i) {
    gsel_error* err = NULL;
    gsel_schedule *schedule = NULL, *again = NULL;
    gsel_simulation* simulation = NULL;
    double begin = now_ms();
    must(gsel_schedule_create(gsel_str_from(name), ranks, microbatches, 0, &schedule, &err), &err);
    make[i] = now_ms() - begin;
    const gsel_str text = gsel_schedule_text(schedule);
    begin = now_ms();
    must(gsel_schedule_parse(text, gsel_str_from(name), &again, &err), &err);
    read[i] = now_ms() - begin;
    begin = now_ms();
    must(gsel_schedule_simulate(schedule, NULL, &simulation, &err), &err);
    simulate[i] = now_ms() - begin;
    begin = now_ms();
    (void)gsel_simulation_json(simulation);
    json[i] = now_ms() - begin;
    actions = 0;
    for (int32_t rank = 0; rank < ranks; ++rank) actions += (size_t)gsel_schedule_length(schedule, rank);
    gsel_simulation_free(simulation);
    gsel_schedule_free(schedule);
    gsel_schedule_free(again);
  }
  printf("| %s | %d | %d | %zu | %.1f | %.1f | %.1f | %.1f |\n", name, ranks, microbatches, actions, median(make),
         median(read), median(simulate), median(json));
}

int main(void) {
  printf("| schedule | ranks | micro-batches | actions | make, ms | read and check, ms | simulate, ms | JSON, ms |\n");
  printf("|---|--:|--:|--:|--:|--:|--:|--:|\n");
  measure("1f1b", 8, 64);
  measure("gpipe", 64, 1024);
  measure("1f1b", 64, 1024);
  measure("zb-h1", 64, 1024);
  measure("interleaved-zb", 64, 1024);
  measure("zb-v", 64, 1024);
  return 0;
}
