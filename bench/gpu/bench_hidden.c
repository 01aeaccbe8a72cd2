/* bench_hidden.c TEXT LAYERS,WIDTH,HEADS,CONTEXT[,cublaslt] STEPS CONFIG...: how much of the communication of a
 * training step of examples/gpt is hidden behind its computation, on ranks that `gsel run` starts, a card for each.
 * CONFIG is the name of two files: CONFIG itself, and CONFIG.off, where the strategy has overlap = false and [train]
 * timeline is a folder. Rounds of STEPS steps of the two alternate.
 *
 * On a device the times of gsel_step_report are the host's but for the step's own, so what is exposed is a difference:
 *   communication  of the step of CONFIG.off: from begin to end of each asynchronous call, by events of the device. It
 *                  hides next to nothing, so what is left of that step is all the rest
 *   exposed        the step of CONFIG, less that rest
 *   the ends       what no computation can hide: the last reduction of gradients; and the allgather that nothing stands
 *                  before, or that nothing follows
 * Prints on rank 0 a row of a table for each CONFIG. Exits with 1 where the losses of the two differ, with 77 where
 * there is no card or no cuBLASLt. */
#define _GNU_SOURCE
#include <inttypes.h>
#include <libgen.h>
#include <math.h>
#include <string.h>

#include "clock_check.h"
#include "trained.h"

enum { ROUNDS = 5 };

/* Seconds of asynchronous calls. */
struct calls {
  double all, last_reduce, first_gather, last_gather;
  int gathers_first;
};

struct mode {
  struct trained own;
  gsel_step_report report; /* of the last step */
  double seconds;          /* of a step, in the last round */
  struct calls calls;      /* of the last step; of CONFIG.off alone */
};

struct measured {
  double step[ROUNDS], without[ROUNDS], communication[ROUNDS], exposed[ROUNDS], ends[ROUNDS];
};

/* ---- calls of a step: docs/step.md ---- */

static double number_of(const char* object, const char* key) {
  const char* at = strstr(object, key);
  return at ? strtod(strchr(at, ':') + 1, NULL) : 0;
}
static int is(const char* object, const char* words) {
  const char *at = strstr(object, words), *end = strchr(object, '}');
  return at && end && at < end;
}

static void read_calls(gsel_trainer* trainer, struct calls* calls) {
  gsel_error* err = NULL;
  gsel_str json;
  *calls = (struct calls){0};
  check(gsel_trainer_step_json(trainer, &json, &err), &err);
  const char* at = strstr(json.data, "\"intervals\"");
  for (at = at ? strchr(at, '{') : NULL; at; at = strchr(at + 1, '{')) {
    if (!is(at, "\"asynchronous\":true") && !is(at, "\"asynchronous\": true")) continue;
    const double seconds = number_of(at, "\"end_s\"") - number_of(at, "\"begin_s\"");
    calls->all += seconds;
    if (is(at, "allgather")) {
      if (calls->first_gather == 0) calls->first_gather = seconds;
      calls->gathers_first |= calls->last_reduce == 0;
      calls->last_gather = seconds;
    } else {
      calls->last_reduce = seconds;
    }
  }
}

/* ---- measuring ---- */

static void steps(struct mode* m, int n, int reads_calls, double* losses) {
  gsel_error* err = NULL;
  m->seconds = 0;
  gsel_step_report_init(&m->report, sizeof m->report);
  for (int i = 0; i < n; ++i) {
    check(gsel_trainer_step(m->own.trainer, &m->report, &err), &err);
    m->seconds += m->report.seconds / n;
    losses[i] = m->report.loss;
  }
  if (reads_calls) read_calls(m->own.trainer, &m->calls);
}

static int by_value(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}
static double median(double* of) {
  qsort(of, ROUNDS, sizeof *of, by_value);
  return of[ROUNDS / 2];
}

static void print_row(const char* name, struct measured* m, const gsel_step_report* report) {
  const double step = median(m->step) * 1e3, communication = median(m->communication) * 1e3;
  printf("| %s | %" PRId32 " of %" PRId32 " | %" PRId32 " | %.3f (%.3f to %.3f) | %.3f | %.3f | %.3f | %.3f |\n", name,
         report->n_overlapped, report->n_reduces, report->n_allgathers, step, m->step[0] * 1e3,
         m->step[ROUNDS - 1] * 1e3, median(m->without) * 1e3, communication, median(m->exposed) * 1e3,
         median(m->ends) * 1e3);
  fflush(stdout);
}

/* Largest difference of losses, of the loss. */
static double compare(const char* path, const struct gpt_sizes* sizes, const char* text, int n) {
  static struct mode modes[2]; /* with overlap, and without */
  struct measured m;
  char file[4096];
  double worst = 0, *losses[2];
  for (int i = 0; i < 2; ++i) {
    modes[i] = (struct mode){.own = {.in_job = 1, .sizes = *sizes}};
    snprintf(file, sizeof file, "%s%s", path, i ? ".off" : "");
    trained_open(&modes[i].own, file, text);
    losses[i] = calloc((size_t)n, sizeof(double));
  }
  for (int round = -1; round < ROUNDS; ++round) {
    for (int i = 0; i < 2; ++i) steps(&modes[i], n, i == 1, losses[i]);
    for (int i = 0; i < n; ++i) worst = fmax(worst, fabs(losses[0][i] - losses[1][i]) / fabs(losses[1][i]));
    if (round < 0) continue;
    const struct calls* calls = &modes[1].calls;
    m.step[round] = modes[0].seconds;
    m.without[round] = modes[1].seconds;
    m.communication[round] = calls->all;
    m.exposed[round] = modes[0].seconds - (modes[1].seconds - calls->all);
    m.ends[round] = calls->last_reduce + (calls->gathers_first ? calls->first_gather : calls->last_gather);
  }
  snprintf(file, sizeof file, "%s", path);
  if (gsel_comm_rank(modes[0].own.comm) == 0) print_row(basename(file), &m, &modes[0].report);
  for (int i = 0; i < 2; ++i) trained_close(&modes[i].own), free(losses[i]);
  return worst;
}

int main(int argc, char** argv) {
  const int n = argc - 4, n_steps = argc > 3 ? atoi(argv[3]) : 0;
  struct gpt_sizes sizes = {0};
  double worst = 0;
  if (n < 1 || n_steps < 1 || trained_sizes(&sizes, argv[2])) {
    fprintf(stderr, "usage: bench_hidden TEXT LAYERS,WIDTH,HEADS,CONTEXT[,cublaslt] STEPS CONFIG...\n");
    return 2;
  }
  for (int i = 0; i < n; ++i) worst = fmax(worst, compare(argv[4 + i], &sizes, argv[1], n_steps));
  if (worst < 1e-3) return 0;
  fprintf(stderr, "bench_hidden: losses with overlap and without differ by %.1e; expected less than 1e-3\n", worst);
  return 1;
}
