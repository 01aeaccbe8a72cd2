/* bench_gpt.c PLUGIN CONFIG TEXT LAYERS,WIDTH,HEADS,CONTEXT[,cublaslt] [STEPS]: a training step of examples/gpt on a
 * GPU beside the same loop written by hand (hand.h), from the same parameters on the same samples with the settings of
 * CONFIG; both multiply matrices by cuBLASLt where the sizes say so. Rounds of STEPS steps alternate. Prints a row of a
 * table: milliseconds of a step of either, their ratio, and the largest difference between their losses, which must be
 * small; exits with 1 where it is not, with 77 where there is no card or no cuBLASLt. */
#define _GNU_SOURCE
#include <math.h>
#include <string.h>

#include "clock_check.h"
#include "trained.h"

enum { ROUNDS = 7 };

struct session {
  struct trained own;
  struct hand_settings set;
  struct hand* hand;
  double worst; /* difference of losses, of the larger one */
};

static void read_settings(struct session* s) {
  s->set.sizes = s->own.sizes;
  s->set.batch = (int64_t)trained_number(&s->own, "train.batch");
  s->set.learning_rate = trained_number(&s->own, "train.learning_rate");
  s->set.weight_decay = trained_number(&s->own, "train.weight_decay");
  s->set.beta1 = trained_number(&s->own, "train.beta1");
  s->set.beta2 = trained_number(&s->own, "train.beta2");
  s->set.epsilon = trained_number(&s->own, "train.epsilon");
  s->set.clip_norm = trained_number(&s->own, "train.clip_norm");
}

/* By hand from what the trainer begins with. */
static void open_hand(struct session* s, const char* plugin) {
  gsel_error* err = NULL;
  const struct gpt_model* gpt = &s->own.gpt;
  int64_t elems = 0, at = 0;
  for (int32_t p = 0; p < gpt->n_params; ++p) elems += gpt->param_elems[p];
  float* values = malloc((size_t)elems * sizeof *values);
  for (int32_t p = 0; p < gpt->n_params; at += gpt->param_elems[p++])
    check(gsel_trainer_read_param(s->own.trainer, p, values + at, (size_t)gpt->param_elems[p] * sizeof(float), &err),
          &err);
  s->hand = hand_open(plugin, &s->set, &s->own.text, values, gpt->param_elems, gpt->n_params);
  free(values);
}

/* Seconds of a step, of n in a row; their losses. */
static double steps_by_hand(struct session* s, int n, double* losses) {
  const double begin = now();
  for (int i = 0; i < n; ++i) losses[i] = hand_step(s->hand);
  hand_finish(s->hand);
  return (now() - begin) / n;
}

static int by_value(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

static void measure(struct session* s, int n) {
  double own[ROUNDS], hand[ROUNDS], ratio[ROUNDS];
  double* losses[2] = {calloc((size_t)n, sizeof(double)), calloc((size_t)n, sizeof(double))};
  for (int round = -1; round < ROUNDS; ++round) {
    const double a = trained_steps(&s->own, n, losses[0]), b = steps_by_hand(s, n, losses[1]);
    for (int i = 0; i < n; ++i) s->worst = fmax(s->worst, fabs(losses[0][i] - losses[1][i]) / fabs(losses[1][i]));
    if (round >= 0) own[round] = a, hand[round] = b, ratio[round] = a / b;
  }
  qsort(own, ROUNDS, sizeof *own, by_value);
  qsort(hand, ROUNDS, sizeof *hand, by_value);
  qsort(ratio, ROUNDS, sizeof *ratio, by_value);
  const int m = ROUNDS / 2;
  const double tokens = (double)(s->set.batch * s->set.sizes.context);
  printf("%.3f (%.3f to %.3f) | %.3f (%.3f to %.3f) | %.3f (%.3f to %.3f) | %.0f | %.1e |\n", own[m] * 1e3,
         own[0] * 1e3, own[ROUNDS - 1] * 1e3, hand[m] * 1e3, hand[0] * 1e3, hand[ROUNDS - 1] * 1e3, ratio[m], ratio[0],
         ratio[ROUNDS - 1], tokens / own[m], s->worst);
  free(losses[0]);
  free(losses[1]);
}

int main(int argc, char** argv) {
  static struct session s;
  const int steps = argc > 5 ? atoi(argv[5]) : 10;
  if (argc < 5 || argc > 6 || steps < 1 || trained_sizes(&s.own.sizes, argv[4])) {
    fprintf(stderr, "usage: bench_gpt PLUGIN CONFIG TEXT LAYERS,WIDTH,HEADS,CONTEXT[,cublaslt] [STEPS]\n");
    return 2;
  }
  trained_open(&s.own, argv[2], argv[3]);
  read_settings(&s);
  open_hand(&s, argv[1]);
  measure(&s, steps);
  hand_close(s.hand);
  trained_close(&s.own);
  const double most = s.own.sizes.dtype == GSEL_BF16 ? 1e-2 : 1e-3;
  if (s.worst < most) return 0;
  fprintf(stderr, "bench_gpt: the losses of gsel and of the loop by hand differ by %.1e; expected less than %.0e\n",
          s.worst, most);
  return 1;
}
