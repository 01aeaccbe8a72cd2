/* bench_gpt.c PLUGIN CONFIG TEXT LAYERS,WIDTH,HEADS,CONTEXT [STEPS]: a training step of examples/gpt on a GPU beside
 * the same loop written by hand (hand.h), from the same parameters on the same samples with the settings of CONFIG.
 * Rounds of STEPS steps alternate. Prints a row of a table: milliseconds of a step of either, their ratio, and the
 * largest difference between their losses, which must be small; exits with 1 where it is not, with 77 where there is no
 * card. */
#define _GNU_SOURCE
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "clock_check.h"
#include "data.h"
#include "hand.h"

enum { ROUNDS = 7 };

struct session {
  struct hand_settings set;
  struct text text;
  struct gpt_model gpt;
  struct device_text on_device;
  gsel_config* config;
  gsel_comm* comm;
  gsel_trainer* trainer;
  struct hand* hand;
  double worst; /* difference of losses, of the larger one */
};

static double number(const struct session* s, const char* key) {
  return atof(gsel_config_get(s->config, gsel_str_from(key)).data);
}

static int read_settings(struct session* s, const char* path, const char* sizes) {
  gsel_error* err = NULL;
  struct gpt_sizes* z = &s->set.sizes;
  if (sscanf(sizes, "%" SCNd64 ",%" SCNd64 ",%" SCNd64 ",%" SCNd64, &z->layers, &z->width, &z->heads, &z->context) != 4)
    return -1;
  check(gsel_config_load(gsel_str_from(path), &s->config, &err), &err);
  s->set.batch = (int64_t)number(s, "train.batch");
  s->set.learning_rate = number(s, "train.learning_rate");
  s->set.weight_decay = number(s, "train.weight_decay");
  s->set.beta1 = number(s, "train.beta1");
  s->set.beta2 = number(s, "train.beta2");
  s->set.epsilon = number(s, "train.epsilon");
  s->set.clip_norm = number(s, "train.clip_norm");
  return 0;
}

static gsel_status fill(const gsel_data_request* request, void* user_data) {
  struct session* s = user_data;
  return device_fill(&s->on_device, &s->text, request->value == s->gpt.targets, request);
}

static void open_trainer(struct session* s) {
  gsel_error* err = NULL;
  gsel_comm_options joining = GSEL_COMM_OPTIONS_INIT;
  gsel_trainer_options options = GSEL_TRAINER_OPTIONS_INIT;
  joining.world_size = 1;
  joining.accelerator = gsel_str_from("cuda:0");
  const gsel_status joined = gsel_comm_init(&joining, &s->comm, &err);
  if (joined == GSEL_ERR_NO_DEVICES || joined == GSEL_ERR_UNSUPPORTED) {
    fprintf(stderr, "bench_gpt: %s\n", gsel_error_message(err).data);
    exit(77);
  }
  check(joined, &err);
  check(gpt_model_create(&s->set.sizes, &device_layers, &s->gpt, &err), &err);
  options.config = s->config;
  options.data = fill;
  options.data_user_data = s;
  check(gsel_trainer_create(s->comm, s->gpt.model, &options, &s->trainer, &err), &err);
}

/* By hand from what the trainer begins with. */
static void open_hand(struct session* s, const char* plugin) {
  gsel_error* err = NULL;
  int64_t elems = 0, at = 0;
  for (int32_t p = 0; p < s->gpt.n_params; ++p) elems += s->gpt.param_elems[p];
  float* values = malloc((size_t)elems * sizeof *values);
  for (int32_t p = 0; p < s->gpt.n_params; at += s->gpt.param_elems[p++])
    check(gsel_trainer_read_param(s->trainer, p, values + at, (size_t)s->gpt.param_elems[p] * sizeof(float), &err),
          &err);
  s->hand = hand_open(plugin, &s->set, &s->text, values, s->gpt.param_elems, s->gpt.n_params);
  free(values);
}

/* Seconds of a step, of so many in a row; their losses. */
static double steps_of_trainer(struct session* s, int n, double* losses) {
  gsel_error* err = NULL;
  gsel_step_report report = GSEL_STEP_REPORT_INIT;
  const double begin = now();
  for (int i = 0; i < n; ++i) {
    check(gsel_trainer_step(s->trainer, &report, &err), &err);
    losses[i] = report.loss;
  }
  return (now() - begin) / n;
}
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
    const double a = steps_of_trainer(s, n, losses[0]), b = steps_by_hand(s, n, losses[1]);
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
  char why[512];
  const int steps = argc > 5 ? atoi(argv[5]) : 10;
  if (argc < 5 || argc > 6 || steps < 1 || read_settings(&s, argv[2], argv[4])) {
    fprintf(stderr, "usage: bench_gpt PLUGIN CONFIG TEXT LAYERS,WIDTH,HEADS,CONTEXT [STEPS]\n");
    return 2;
  }
  if (text_load(&s.text, argv[3], s.set.sizes.context, (uint64_t)number(&s, "train.seed"), why, sizeof why)) {
    fprintf(stderr, "bench_gpt: %s\n", why);
    return 1;
  }
  open_trainer(&s);
  open_hand(&s, argv[1]);
  measure(&s, steps);
  hand_close(s.hand);
  gsel_trainer_free(s.trainer);
  device_text_free(&s.on_device);
  gpt_model_free(&s.gpt);
  gsel_comm_free(s.comm);
  gsel_config_free(s.config);
  text_free(&s.text);
  if (s.worst < 1e-3) return 0;
  fprintf(stderr, "bench_gpt: the losses of gsel and of the loop by hand differ by %.1e; expected less than 1e-3\n",
          s.worst);
  return 1;
}
