/* What embedders bring to a trainer on devices and ask of it: an optimizer of their own, inference, whole parameters
 * and gradients, another learning rate; and gradients that travel in 16 bits or in low rank. All is bit for bit that of
 * as many ranks on the host. */
#include <math.h>
#include <stddef.h>

#include "fake/cuda/on_device.h"
#include "support/trainer_trial.h"

typedef struct answers {
  float params[EXACT_ELEMS], gradients[EXACT_ELEMS], logits[2 * TOKENS * VOCAB];
  double loss;
} answers;

typedef struct asked {
  trial t;
  answers* out; /* shared memory, [world_size] */
} asked;

static void train_and_ask(rank_run* run) {
  asked* a = (asked*)run->user;
  answers* out = &a->out[run->rank];
  gsel_error* err = NULL;
  gsel_step_report report = GSEL_STEP_REPORT_INIT;
  session s;
  run->user = &a->t;
  rank_ok(run, open_session(run, &s, &err), err);
  run->user = a;
  for (int i = 0; i < 3; ++i) {
    rank_ok(run, gsel_trainer_step(s.trainer, NULL, &err), err);
    rank_ok(run, gsel_trainer_infer(s.trainer, V_LOGITS, 2, exact_data, NULL, out->logits, sizeof out->logits, &err),
            err);
    rank_ok(run, gsel_trainer_set_learning_rate(s.trainer, 0.25, &err), err);
  }
  rank_ok(run, gsel_trainer_evaluate(s.trainer, 50, NULL, NULL, &report, &err), err);
  out->loss = report.loss_sum;
  read_params(run, s.trainer, out->params);
  if (gsel_trainer_holds_params(s.trainer) && !a->t.optimizer) /* which may overwrite gradients */
    for (int p = 0, at = 0; p < N_PARAMS; at += (int)kExactElems[p++])
      rank_ok(
          run,
          gsel_trainer_read_gradient(s.trainer, p, &out->gradients[at], sizeof(float) * (size_t)kExactElems[p], &err),
          err);
  close_session(&s);
}

static answers* shared_answers(void) {
  return (answers*)shared_memory(sizeof(answers) * RANKS_MAX);
}

/* All of it is floats, but for the loss, which is compared by itself; NaN has any sign. */
static int same_answers(const answers* a, const answers* b) {
  const float *x = a->params, *y = b->params;
  for (size_t i = 0; i < offsetof(answers, loss) / sizeof(float); ++i)
    if (memcmp(&x[i], &y[i], sizeof *x) != 0 && !(isnan(x[i]) && isnan(y[i]))) return 0;
  return memcmp(&a->loss, &b->loss, sizeof a->loss) == 0;
}

/* Two ranks: a sum of two numbers has one order. */
static void equals_the_host(const char* section, const char* train, const gsel_optimizer_options* optimizer) {
  char config[1024];
  snprintf(config, sizeof config, "%s%s", section, train);
  asked on_host = {plain(config, NULL), shared_answers()}, on_device = {plain(config, NULL), shared_answers()};
  on_host.t.random = on_device.t.random = 1;
  on_host.t.optimizer = on_device.t.optimizer = optimizer;
  print_message("  %s", config);
  as_threads(2, train_and_ask, &on_host);
  on_transport = "nccl";
  as_threads(2, train_and_ask, &on_device);
  on_transport = NULL;
  no_violations();
  assert_true(on_host.out[0].loss != 0 && isfinite(on_host.out[0].loss));
  for (int r = 0; r < 2; ++r) assert_true(same_answers(&on_device.out[r], &on_host.out[r]));
  munmap(on_host.out, sizeof(answers) * RANKS_MAX);
  munmap(on_device.out, sizeof(answers) * RANKS_MAX);
}

static const char* const kSections[] = {
    DDP(""),
    ZERO("1", "bucket_bytes = 100\n"),
    ZERO("3", ALL_SHARDED),
    DP(""),
    "[mesh]\npipeline = 2\n[strategy.pipeline]\nplugin = \"pp\"\n",
};
enum { N_SECTIONS = sizeof kSections / sizeof *kSections };
#define ADAMW "[train]\noptimizer = \"adamw\"\nlearning_rate = 0.125\nbatch = 8\nmicrobatches = 2\nseed = 5\n"

static void what_is_asked_between_steps(void** state) {
  (void)state;
  for (int i = 0; i < N_SECTIONS; ++i) {
    equals_the_host(kSections[i], ADAMW, NULL);
    equals_the_host(kSections[i], ADAMW "precision = \"bf16\"\n", NULL);
  }
}

/* ---- the embedder's optimizer ---- */

/* Momentum; the gradient is overwritten. */
static gsel_status step_elements(const gsel_optimizer_call* c, void* user) {
  (void)user;
  for (int64_t i = 0; i < c->count; ++i) {
    c->states[0][i] = 0.5f * c->states[0][i] + c->gradient[i];
    c->values[i] -= (float)c->learning_rate * c->states[0][i];
    c->gradient[i] = NAN;
  }
  return GSEL_OK;
}
/* An update that is scaled by norms, as LAMB's. */
static gsel_status step_by_norms(const gsel_optimizer_call* c, void* user) {
  (void)user;
  for (int64_t i = 0; c->phase == 0 && i < c->count; ++i) c->gradient[i] *= 0.5f;
  const double ratio = c->update_norm > 0 ? c->param_norm / c->update_norm : 1;
  for (int64_t i = 0; c->phase == 1 && i < c->count; ++i)
    c->values[i] -= (float)(c->learning_rate * ratio) * c->gradient[i];
  return GSEL_OK;
}
/* The mean of a whole parameter's gradient is taken off it. */
static gsel_status step_whole(const gsel_optimizer_call* c, void* user) {
  (void)user;
  float mean = 0;
  for (int64_t i = 0; i < c->count; ++i) mean += c->gradient[i] / (float)c->count;
  for (int64_t i = 0; i < c->count; ++i) c->values[i] -= (float)c->learning_rate * (c->gradient[i] - mean);
  return GSEL_OK;
}

static void optimizers_of_the_embedder(void** state) {
  (void)state;
  static const struct {
    int32_t needs, n_states;
    gsel_optimizer_fn step;
  } kOwn[] = {{GSEL_NEEDS_ELEMENTS, 1, step_elements},
              {GSEL_NEEDS_PARAM_NORM, 0, step_by_norms},
              {GSEL_NEEDS_WHOLE_PARAM, 0, step_whole}};
  for (size_t k = 0; k < sizeof kOwn / sizeof *kOwn; ++k)
    for (int i = 0; i < N_SECTIONS; ++i) {
      gsel_optimizer_options optimizer = GSEL_OPTIMIZER_OPTIONS_INIT;
      optimizer.needs = kOwn[k].needs;
      optimizer.n_states = kOwn[k].n_states;
      optimizer.step = kOwn[k].step;
      equals_the_host(kSections[i], "[train]\nlearning_rate = 0.125\nbatch = 8\nseed = 5\n", &optimizer);
    }
}

static void gradients_in_16_bits(void** state) {
  (void)state;
  equals_the_host(DDP("compress = \"f16\"\n"), ADAMW, NULL);
  equals_the_host(DDP("compress = \"bf16\"\nbucket_bytes = 100\n"), ADAMW, NULL);
}

/* Two matrices of the model are larger than their factors of rank 1. */
static void gradients_in_low_rank(void** state) {
  (void)state;
#define LOW_RANK "compress = \"low_rank\"\ncompress_rank = 1\n"
  equals_the_host(DDP(LOW_RANK "compress_start = 0\n"), ADAMW, NULL);
  equals_the_host(DDP(LOW_RANK "compress_start = 1\nbucket_bytes = 100\n"), ADAMW, NULL);
  /* Two copies of the error, of which a step that is skipped leaves one alone. */
  equals_the_host(DDP(LOW_RANK "compress_start = 0\n"), ADAMW "clip_norm = 0.5\n", NULL);
  equals_the_host(DDP(LOW_RANK "compress_start = 0\n"), ADAMW "precision = \"fp16\"\nloss_scale_initial = 3e38\n",
                  NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_is_asked_between_steps),
      cmocka_unit_test(optimizers_of_the_embedder),
      cmocka_unit_test(gradients_in_16_bits),
      cmocka_unit_test(gradients_in_low_rank),
  };
  return cmocka_run_group_tests_name("train_own", tests, NULL, NULL);
}
