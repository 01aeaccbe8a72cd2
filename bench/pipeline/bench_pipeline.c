/* bench_pipeline [ROUNDS]: pipelines as they run beside pipelines as they are simulated. Kernels that sleep show what
 * the schedule and the messages cost, whatever else the machine does; kernels that compute show what two cores gain;
 * kernels of nothing show what an instruction costs. Prints tables in Markdown. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chain.h"
#include "trained.h"

enum { MOST_ROUNDS = 64 };

static int by_value(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

static double median(const double* values, int n) {
  double sorted[MOST_ROUNDS];
  memcpy(sorted, values, sizeof(double) * (size_t)n);
  qsort(sorted, (size_t)n, sizeof(double), by_value);
  return sorted[n / 2];
}

static void check(gsel_status status, gsel_error* const* err) {
  if (!status) return;
  fprintf(stderr, "bench_pipeline: %s\n", gsel_error_message(*err).data);
  exit(1);
}

static gsel_simulation_report simulate(const struct chain* c) {
  const int chunks = c->stages / c->ranks;
  gsel_error* err = NULL;
  gsel_schedule* schedule = NULL;
  gsel_simulation* simulation = NULL;
  gsel_schedule_times times = GSEL_SCHEDULE_TIMES_INIT;
  gsel_simulation_report report = GSEL_SIMULATION_REPORT_INIT;
  times.forward = c->forward * chunks;
  times.backward_input = c->backward_input * chunks;
  times.backward_weight = c->backward_weight * chunks;
  check(gsel_schedule_create(gsel_str_from(c->schedule), c->ranks, c->microbatches, chunks, &schedule, &err), &err);
  check(gsel_schedule_simulate(schedule, &times, &simulation, &err), &err);
  check(gsel_simulation_get(simulation, &report, &err), &err);
  gsel_simulation_free(simulation);
  gsel_schedule_free(schedule);
  return report;
}

/* ---- sleeping ---- */

static void sleep_through(const char* schedule, int ranks, int chunks, int microbatches, int rounds) {
  static const double share_s = 0.03; /* forward, of a rank's whole share; each half of backward as well */
  struct chain c = {.schedule = schedule, .ranks = ranks, .stages = ranks * chunks, .microbatches = microbatches};
  struct chain_result results[MOST_ROUNDS];
  double makespans[MOST_ROUNDS], bubbles[MOST_ROUNDS];
  c.forward = c.backward_input = c.backward_weight = share_s / chunks;
  c.width = 1024;
  chain_run(&c, rounds, results);
  for (int i = 0; i < rounds; ++i) {
    makespans[i] = results[i].makespan_s;
    bubbles[i] = 1 - results[i].busiest_s / results[i].makespan_s;
  }
  const gsel_simulation_report expected = simulate(&c);
  const double makespan = median(makespans, rounds), bubble = median(bubbles, rounds);
  printf("| %s | %d | %d | %.1f ms | %.1f ms | %+.2f %% | %.2f %% | %.2f %% | %+.1f %% |\n", schedule, ranks,
         microbatches, 1e3 * expected.makespan, 1e3 * makespan, 100 * (makespan / expected.makespan - 1),
         100 * expected.bubble_of_makespan, 100 * bubble, 100 * (bubble / expected.bubble_of_makespan - 1));
  fflush(stdout);
}

static void all_sleeping(int rounds) {
  static const struct {
    const char* name;
    int chunks;
  } schedules[] = {{"naive", 1}, {"gpipe", 1}, {"1f1b", 1},           {"interleaved-1f1b", 2},
                   {"zb-h1", 1}, {"zb-h2", 1}, {"interleaved-zb", 2}, {"zb-v", 2}};
  printf(
      "## Kernels that sleep\n\n| schedule | ranks | micro-batches | simulated | measured | off by | bubble of the "
      "simulated time | of the measured | off by |\n|---|---|---|---|---|---|---|---|---|\n");
  for (size_t k = 0; k < sizeof schedules / sizeof *schedules; ++k)
    for (int ranks = 2; ranks <= 4; ranks += 2) sleep_through(schedules[k].name, ranks, schedules[k].chunks, 8, rounds);
  sleep_through("1f1b", 4, 1, 16, rounds);
  sleep_through("zb-v", 4, 2, 16, rounds);
}

/* ---- in a row ---- */

/* Where nothing of all ranks is looked at between runs, a rank begins the next one when its own has ended. */
static void sleep_in_a_row(const char* schedule, int chunks, int rounds) {
  static const double share_s = 0.03;
  struct chain c = {.schedule = schedule, .ranks = 4, .stages = 4 * chunks, .microbatches = 8, .in_a_row = 1};
  struct chain_result results[MOST_ROUNDS + 1];
  double periods[MOST_ROUNDS];
  c.forward = c.backward_input = c.backward_weight = share_s / chunks;
  c.width = 1024;
  chain_run(&c, rounds + 1, results);
  for (int i = 0; i < rounds; ++i) periods[i] = results[i + 1].period_s;
  const gsel_simulation_report expected = simulate(&c);
  const double period = median(periods, rounds);
  printf("| %s | %.1f ms | %.1f ms | %.1f ms | %+.2f %% |\n", schedule, 1e3 * expected.makespan,
         1e3 * expected.longest_rank_span, 1e3 * period, 100 * (period / expected.longest_rank_span - 1));
  fflush(stdout);
}

/* A trainer's steps in a row. A clip_norm that never clips is looked at all the same; one that always does has every
 * step undone. */
static void train_sleeping(const char* schedule, const char* words, double clip_norm, const char* post_validate,
                           int rounds) {
  static const double share_s = 0.03;
  const struct trained t = {.schedule = schedule,
                            .ranks = 4,
                            .microbatches = 8,
                            .part_s = share_s,
                            .clip_norm = clip_norm,
                            .post_validate = post_validate};
  struct chain like = {.schedule = schedule, .ranks = 4, .stages = 4, .microbatches = 8};
  double periods[MOST_ROUNDS];
  like.forward = like.backward_input = like.backward_weight = share_s;
  train_in_a_row(&t, rounds, periods);
  const gsel_simulation_report expected = simulate(&like);
  const double period = median(periods, rounds);
  printf("| %s, %s | %.1f ms | %.1f ms | %.1f ms | %+.2f %% |\n", schedule, words, 1e3 * expected.makespan,
         1e3 * expected.longest_rank_span, 1e3 * period, 100 * (period / expected.longest_rank_span - 1));
  fflush(stdout);
}

/* ---- computing ---- */

static void compute(const char* schedule, int rounds) {
  static const double part_s = 0.002;
  const double turns = part_s * chain_turns_per_second();
  struct chain two = {.schedule = schedule, .ranks = 2, .stages = 2, .microbatches = 16, .computes = 1, .width = 4096};
  two.forward = two.backward_input = two.backward_weight = turns;
  struct chain one = two;
  one.ranks = 1;
  struct chain_result alone[MOST_ROUNDS], together[MOST_ROUNDS];
  double gains[MOST_ROUNDS], least = 1e9, least_alone = 1e9;
  for (int i = 0; i < rounds; ++i) { /* in turn, so that whatever else the machine does hits both */
    chain_run(&one, 1, &alone[i]);
    chain_run(&two, 1, &together[i]);
    gains[i] = alone[i].makespan_s / together[i].makespan_s;
    if (together[i].makespan_s < least) least = together[i].makespan_s;
    if (alone[i].makespan_s < least_alone) least_alone = alone[i].makespan_s;
  }
  const gsel_simulation_report expected = simulate(&two);
  const double simulated = 2 * expected.ideal / expected.makespan;
  printf("| %s | %.3f | %.3f | %.3f | %.3f |\n", schedule, simulated, median(gains, rounds),
         median(gains, rounds) / simulated, least_alone / least / simulated);
  fflush(stdout);
}

/* ---- nothing ---- */

static void do_nothing(int ranks, int rounds) {
  struct chain c = {
      .schedule = "1f1b", .ranks = ranks, .stages = ranks == 1 ? 14 : ranks, .microbatches = 64, .width = 16};
  struct chain_result results[MOST_ROUNDS];
  double own[MOST_ROUNDS], all[MOST_ROUNDS];
  chain_run(&c, rounds, results);
  for (int i = 0; i < rounds; ++i) {
    own[i] = results[i].overhead_s;
    all[i] = results[i].instruction_s;
  }
  printf("| %d | %.2f us | %.2f us |\n", ranks, 1e6 * median(own, rounds), 1e6 * median(all, rounds));
  fflush(stdout);
}

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? atoi(argv[1]) : 5;
  if (rounds < 1 || rounds > MOST_ROUNDS) {
    fprintf(stderr, "bench_pipeline: %s rounds; use 1 to %d\n", argv[1], MOST_ROUNDS);
    return 2;
  }
  all_sleeping(rounds);
  printf(
      "\n## Runs in a row, four ranks, 8 micro-batches, kernels that sleep\n\n| schedule | makespan, simulated | "
      "longest "
      "rank span, simulated | a run, measured | off the span by |\n|---|---|---|---|---|\n");
  sleep_in_a_row("1f1b", 1, rounds);
  sleep_in_a_row("zb-h1", 1, rounds);
  sleep_in_a_row("zb-h2", 1, rounds);
  sleep_in_a_row("zb-v", 2, rounds);
  printf(
      "\n## Steps of a trainer in a row, the same\n\n| schedule | makespan, simulated | longest rank span, simulated | "
      "a step, measured | off the span by |\n|---|---|---|---|---|\n");
  train_sleeping("1f1b", "clip_norm", 1e9, "off", rounds);
  train_sleeping("zb-h2", "nothing looked at", 0, "off", rounds);
  train_sleeping("zb-h2", "clip_norm, post_validate = \"off\"", 1e9, "off", rounds);
  train_sleeping("zb-h2", "clip_norm, post_validate = \"on\"", 1e9, "on", rounds);
  train_sleeping("zb-h2", "the same, every step clipped", 1e-3, "on", rounds);
  printf(
      "\n## Kernels that compute, two ranks, 16 micro-batches\n\n| schedule | speed-up, simulated | measured | of the "
      "simulated | least times, of the simulated |\n|---|---|---|---|---|\n");
  compute("1f1b", rounds);
  compute("gpipe", rounds);
  compute("zb-h1", rounds);
  printf(
      "\n## Kernels of nothing\n\n| ranks | overhead per instruction | whole run, per instruction |\n|---|---|---|\n");
  do_nothing(1, rounds);
  do_nothing(2, rounds);
  return 0;
}
