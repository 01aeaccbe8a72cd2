/* Batches that do not divide, and data that ends: micro-batches without samples weigh nothing, and their ranks take
 * part in everything that others wait for. */
#include "support/step_model.h"
#include "support/trainer_trial.h"

/* ---- uneven shards ---- */

static void a_batch_of_5_on_3_ranks_one_sample_at_a_time_equals_one_rank(void** state) {
  (void)state;
  static const char train_section[] = TRAIN("5", "microbatch = 1\n");
  const trial like = plain(NULL, NULL);
  outcome *expected = exact_reference(&like, train_section), *out = shared_outcomes();
  for (size_t z = 0; z < N_STEP_STRATEGIES; ++z) {
    char config[512];
    snprintf(config, sizeof config, "%s%s", kStepStrategies[z], train_section);
    trial t = plain(config, out);
    t.expected = expected;
    as_threads(3, train, &t);
  }
  free_outcomes(expected);
  free_outcomes(out);
}

/* ---- data that ends ---- */

enum { END_STEPS = 3 };

typedef struct ending {
  step_model m;
  int64_t samples; /* ids from here on do not exist; a micro-batch with one of them has no samples */
  int pull;
  const float* expected;
  float* out; /* [world_size][STEP_PARAMS * STEP_WIDTH + 2 * END_STEPS]: parameters, then loss sums and weights */
} ending;
enum { ENDING_FLOATS = STEP_PARAMS * STEP_WIDTH + 2 * END_STEPS };

static gsel_status data_ends(const gsel_data_request* r, void* user) {
  const ending* e = (const ending*)((const step_model*)user)->user;
  for (int64_t s = 0; s < r->n_samples; ++s)
    if (r->sample_ids[s] >= e->samples) return GSEL_NO_SAMPLES;
  return step_data(r, user);
}

/* No callback runs where there are no samples. */
static gsel_status sees_samples(const gsel_call* c, void* user) {
  const ending* e = (const ending*)((const step_model*)user)->user;
  return c->n_samples > 0 && c->sample_ids[c->n_samples - 1] < e->samples ? step_forward(c, user) : GSEL_ERR_INTERNAL;
}

static gsel_status pull_step_of(step_session* s, gsel_error** err) {
  static const gsel_str none = {NULL, 0};
  for (;;) {
    gsel_work work = GSEL_WORK_INIT;
    gsel_status status = gsel_trainer_next_work(s->trainer, &work, err), done = GSEL_OK;
    if (status || work.kind == GSEL_WORK_DONE) return status;
    if (work.input)
      done = data_ends(work.input, &s->m);
    else if (work.call->layer == 0)
      done = (work.kind == GSEL_FORWARD ? sees_samples : step_backward)(work.call, &s->m);
    else
      done = (work.kind == GSEL_FORWARD ? step_loss_forward : step_loss_backward)(work.call, NULL);
    status = gsel_trainer_complete(s->trainer, work.ticket, done, none, err);
    if (status) return status;
  }
}

static void train_to_the_end(rank_run* run) {
  const ending* e = (const ending*)run->user;
  float* out = e->out + run->rank * ENDING_FLOATS;
  step_session s;
  gsel_error* err = NULL;
  step_model m = e->m;
  m.data = data_ends;
  m.forward = sees_samples;
  m.user = (void*)(uintptr_t)e;
  rank_ok(run, step_open(run, &m, &s, &err), err);
  for (int i = 0; i < END_STEPS; ++i) {
    gsel_step_report report = GSEL_STEP_REPORT_INIT;
    rank_ok(run, e->pull ? pull_step_of(&s, &err) : gsel_trainer_step(s.trainer, NULL, &err), err);
    rank_ok(run, gsel_trainer_report(s.trainer, &report, &err), err);
    out[STEP_PARAMS * STEP_WIDTH + 2 * i] = (float)report.loss_sum;
    out[STEP_PARAMS * STEP_WIDTH + 2 * i + 1] = (float)report.weight;
  }
  rank_ok(run, step_params(s.trainer, out, &err), err);
  if (e->expected) rank_check(run, memcmp(out, e->expected, sizeof(float) * ENDING_FLOATS) == 0);
  step_close(&s);
}

static void micro_batches_without_samples_weigh_nothing(void** state) {
  (void)state;
  float *expected = (float*)shared_memory(sizeof(float) * ENDING_FLOATS),
        *out = (float*)shared_memory(sizeof(float) * ENDING_FLOATS * RANKS_MAX);
  static const char train_section[] = STEP_SIGN("6", "microbatch = 1\n");
  char config[512];
  /* The third step, ids 12 to 17, has all of its samples, one (on rank 0 alone), or all but one. */
  static const int64_t ends[] = {18, 13, 17};
  for (size_t k = 0; k < sizeof ends / sizeof *ends; ++k) {
    ending e;
    memset(&e, 0, sizeof e);
    e.m.config = train_section;
    e.samples = ends[k];
    e.out = expected;
    as_threads(1, train_to_the_end, &e);
    assert_true(expected[ENDING_FLOATS - 1] == (float)(ends[k] - 12));
    e.expected = expected;
    e.out = out;
    for (size_t z = 0; z < 2 * N_STEP_STRATEGIES; ++z)
      for (int n = 1; n <= 3; ++n) {
        snprintf(config, sizeof config, "%s%s", kStepStrategies[z / 2], train_section);
        e.m.config = config;
        e.pull = z % 2;
        as_threads(n, train_to_the_end, &e);
      }
  }
  munmap(expected, sizeof(float) * ENDING_FLOATS);
  munmap(out, sizeof(float) * ENDING_FLOATS * RANKS_MAX);
}

/* ---- refusals ---- */

static gsel_status no_data(const gsel_data_request* r, void* user) {
  (void)r, (void)user;
  return GSEL_NO_SAMPLES;
}

static void refuse_nothing(rank_run* run) {
  step_model m;
  step_session s;
  gsel_error* err = NULL;
  memset(&m, 0, sizeof m);
  m.config = STEP_SIGN("6", "");
  m.data = no_data;
  rank_ok(run, step_open(run, &m, &s, &err), err);
  rank_fails(run, gsel_trainer_step(s.trainer, NULL, &err), err, GSEL_ERR_MODEL,
             "the loss weights of step 0 sum to 0; the sum over all ranks must be positive", -1);
  step_close(&s);
}

static void a_step_without_any_sample_is_an_error_on_every_rank(void** state) {
  (void)state;
  as_threads(1, refuse_nothing, NULL);
  as_threads(3, refuse_nothing, NULL);
}

/* Nothing came of it, and nothing is broken: steps and evaluations can follow. */
static void evaluate_nothing(rank_run* run) {
  const char* const config = (const char*)run->user;
  step_model m;
  step_session s;
  gsel_error* err = NULL;
  gsel_work work = GSEL_WORK_INIT;
  gsel_step_report report = GSEL_STEP_REPORT_INIT;
  const gsel_str none = {NULL, 0};
  memset(&m, 0, sizeof m);
  m.config = config;
  rank_ok(run, step_open(run, &m, &s, &err), err);
  for (int i = 0; i < 2; ++i) {
    rank_fails(run, gsel_trainer_evaluate(s.trainer, 0, no_data, NULL, NULL, &err), err, GSEL_ERR_MODEL,
               "the loss weights of the evaluation before step", -1);
    rank_ok(run, gsel_trainer_step(s.trainer, NULL, &err), err);
  }
  rank_ok(run, gsel_trainer_begin_evaluation(s.trainer, 0, &err), err);
  gsel_status status = gsel_trainer_next_work(s.trainer, &work, &err);
  for (; !status && work.kind == GSEL_INPUT; status = gsel_trainer_next_work(s.trainer, &work, &err))
    rank_ok(run, gsel_trainer_complete(s.trainer, work.ticket, GSEL_NO_SAMPLES, none, &err), err);
  rank_fails(run, status, err, GSEL_ERR_MODEL, "the loss weights of the evaluation before step 2 sum to 0", -1);
  rank_ok(run, gsel_trainer_report(s.trainer, &report, &err), err);
  rank_check(run, report.step == 1);
  rank_ok(run, gsel_trainer_evaluate(s.trainer, 0, NULL, NULL, &report, &err), err);
  rank_check(run, report.weight == 6);
  rank_ok(run, gsel_trainer_step(s.trainer, NULL, &err), err);
  rank_ok(run, gsel_barrier(s.comm, &err), err);
  step_close(&s);
}

static void an_evaluation_without_any_sample_is_an_error_that_breaks_nothing(void** state) {
  (void)state;
  char config[512];
  for (size_t z = 0; z < N_STEP_STRATEGIES; ++z)
    for (int n = 1; n <= 3; ++n) {
      snprintf(config, sizeof config, "%s%s", kStepStrategies[z], STEP_SIGN("6", "microbatch = 1\n"));
      as_threads(n, evaluate_nothing, config);
    }
}

static void refuse_scattered(rank_run* run) {
  step_model m;
  step_session s;
  gsel_error* err = NULL;
  memset(&m, 0, sizeof m);
  m.config = "[strategy.data]\nplugin = \"dp\"\n" STEP_SIGN("6", "");
  m.data = no_data;
  rank_ok(run, step_open(run, &m, &s, &err), err);
  rank_fails(run, gsel_trainer_step(s.trainer, NULL, &err), err, run->rank == 0 ? GSEL_ERR_CALLBACK : GSEL_ERR_ABORTED,
             "input \"x\" had no samples on rank 0, step 0, micro-batch", -1);
  step_close(&s);
}

static void a_strategy_that_scatters_the_batch_needs_all_of_it(void** state) {
  (void)state;
  as_threads(2, refuse_scattered, NULL);
}

static gsel_status layer_without_samples(const gsel_call* c, void* user) {
  (void)c, (void)user;
  return GSEL_NO_SAMPLES;
}

static void only_data_may_have_no_samples(void** state) {
  (void)state;
  rank_run* run = ranks_prepare(1, NULL);
  step_model m;
  step_session s;
  gsel_error* err = NULL;
  memset(&m, 0, sizeof m);
  m.config = STEP_SIGN("6", "");
  m.forward = layer_without_samples;
  check_ok(step_open(run, &m, &s, &err), err);
  check_fails(
      gsel_trainer_step(s.trainer, NULL, &err), err, GSEL_ERR_CALLBACK,
      "layer \"line\" failed in forward on rank 0, step 0, micro-batch 0: it returned 1, which is a code of its own");
  step_close(&s);
  ranks_verdict(run, 1);
}

static gsel_status says_why_with_its_own_code(const gsel_call* c, void* user) {
  (void)user;
  snprintf(c->message, c->message_capacity, "no device");
  return 42;
}

static void a_code_of_the_embedders_own_is_told_as_a_number(void** state) {
  (void)state;
  rank_run* run = ranks_prepare(1, NULL);
  step_model m;
  step_session s;
  gsel_error* err = NULL;
  memset(&m, 0, sizeof m);
  m.config = STEP_SIGN("6", "");
  m.backward = says_why_with_its_own_code;
  check_ok(step_open(run, &m, &s, &err), err);
  check_fails(gsel_trainer_step(s.trainer, NULL, &err), err, GSEL_ERR_CALLBACK, "no device (it returned 42)");
  step_close(&s);
  ranks_verdict(run, 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_batch_of_5_on_3_ranks_one_sample_at_a_time_equals_one_rank),
      cmocka_unit_test(micro_batches_without_samples_weigh_nothing),
      cmocka_unit_test(a_step_without_any_sample_is_an_error_on_every_rank),
      cmocka_unit_test(an_evaluation_without_any_sample_is_an_error_that_breaks_nothing),
      cmocka_unit_test(a_strategy_that_scatters_the_batch_needs_all_of_it),
      cmocka_unit_test(only_data_may_have_no_samples),
      cmocka_unit_test(a_code_of_the_embedders_own_is_told_as_a_number),
  };
  return cmocka_run_group_tests_name("step samples", tests, NULL, NULL);
}
