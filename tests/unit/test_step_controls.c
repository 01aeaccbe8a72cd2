/* What a caller controls and reads between steps: the learning rate, by a schedule or by the caller; gradients and
 * their norm; lines of progress in the log; and what is said of a default that changes what is trained. */
#include <math.h>

#include "support/step_equals.h"

/* ---- the learning rate ---- */

static void expect_wsd(rank_run* run) {
  static const double expected[] = {0.5, 1, 1, 1, 1, 0.775, 0.55, 0.325, 0.1, 0.1};
  step_model m = nothing();
  step_session s;
  gsel_error* err = NULL;
  m.config = STEP_SIGN("6",
                       "schedule = \"wsd\"\nwarmup_steps = 2\ntotal_steps = 8\ndecay_steps = 4\n"
                       "final_learning_rate = 0.1\n");
  rank_ok(run, step_open(run, &m, &s, &err), err);
  for (int i = 0; i < 10; ++i) {
    gsel_step_report report = GSEL_STEP_REPORT_INIT;
    rank_ok(run, gsel_trainer_step(s.trainer, &report, &err), err);
    rank_check(run, fabs(report.learning_rate - expected[i]) < 1e-12);
  }
  step_close(&s);
}

static void a_wsd_schedule_warms_up_stays_and_falls(void** state) {
  (void)state;
  static const struct {
    const char *config, *message;
  } refused[] = {
      {STEP_SIGN("6", "schedule = \"wsd\"\ntotal_steps = 8\n"),
       "step.toml:6: train.schedule = \"wsd\" falls in the last train.decay_steps, which is 0; expected 1 to 8"},
      {STEP_SIGN("6", "schedule = \"wsd\"\ntotal_steps = 8\nwarmup_steps = 3\ndecay_steps = 6\n"),
       "step.toml:9: train.schedule = \"wsd\" falls in the last train.decay_steps, which is 6; expected 1 to 5"},
      {STEP_SIGN("6", "schedule = \"wsd\"\ndecay_steps = 6\n"),
       "step.toml:6: train.schedule = \"wsd\" ends at train.total_steps, which is 0"},
  };
  as_threads(2, expect_wsd, NULL);
  for (size_t i = 0; i < sizeof refused / sizeof *refused; ++i) {
    rank_run* run = ranks_prepare(1, NULL);
    step_model m = nothing();
    step_session s;
    gsel_error* err = NULL;
    m.config = refused[i].config;
    check_fails(step_open(run, &m, &s, &err), err, GSEL_ERR_CONFIG, refused[i].message);
    step_close(&s);
    ranks_verdict(run, 1);
  }
}

/* Steps of 1, then of 1/2 and 1/4 as they are set; a run whose configuration says so is the same but for the first. */
static void set_rates(rank_run* run) {
  static const double rates[] = {1, 0.5, 0.5, 0.25};
  const trial* t = (const trial*)run->user;
  step_session s;
  gsel_error* err = NULL;
  float before[N_ELEMS], after[N_ELEMS];
  rank_ok(run, step_open(run, &t->m, &s, &err), err);
  for (int i = 0; i < 4; ++i) {
    gsel_step_report report = GSEL_STEP_REPORT_INIT;
    if (i == 1 || i == 3) rank_ok(run, gsel_trainer_set_learning_rate(s.trainer, rates[i], &err), err);
    rank_ok(run, step_params(s.trainer, before, &err), err);
    rank_ok(run, gsel_trainer_step(s.trainer, &report, &err), err);
    rank_ok(run, step_params(s.trainer, after, &err), err);
    rank_check(run, report.learning_rate == rates[i]);
    for (int k = 0; k < N_ELEMS; ++k) /* sign-SGD moves by the rate, or stays where a gradient is 0 */
      rank_check(run, before[k] == after[k] || fabsf(before[k] - after[k]) == (float)rates[i]);
    rank_check(run, memcmp(before, after, sizeof before) != 0);
  }
  rank_fails(run, gsel_trainer_set_learning_rate(s.trainer, -1, &err), err, GSEL_ERR_ARG, "learning_rate is -1", -1);
  rank_fails(run, gsel_trainer_set_learning_rate(s.trainer, NAN, &err), err, GSEL_ERR_ARG, "learning_rate is nan", -1);
  rank_ok(run, gsel_trainer_step(s.trainer, NULL, &err), err);
  step_close(&s);
}

static void a_learning_rate_that_is_set_holds_from_the_next_step_on(void** state) {
  (void)state;
  char config[640];
  for (size_t z = 0; z < N_STEP_EACH_STRATEGY; ++z) {
    trial t = {.m = nothing()};
    snprintf(config, sizeof config, "%s%s", kStepEachStrategy[z],
             STEP_SIGN("6", "microbatches = 2\nschedule = \"linear\"\nwarmup_steps = 1\ntotal_steps = 1000000000\n"));
    t.m.config = config;
    as_threads(2, set_rates, &t);
  }
}

static void set_other_rates(rank_run* run) {
  step_model m = nothing();
  step_session s;
  gsel_error* err = NULL;
  m.config = STEP_SIGN("6", "");
  rank_ok(run, step_open(run, &m, &s, &err), err);
  gsel_status status = gsel_trainer_set_learning_rate(s.trainer, run->rank ? 0.5 : 0.25, &err);
  if (!status) status = gsel_trainer_step(s.trainer, NULL, &err);
  rank_fails(run, status, err, GSEL_ERR_MISMATCH,
             "rank 0 called gsel_trainer_set_learning_rate(0.25), rank 1 called gsel_trainer_set_learning_rate(0.5)",
             -1);
  step_close(&s);
}

static void ranks_that_set_other_rates_are_told(void** state) {
  (void)state;
  as_threads(2, set_other_rates, NULL);
}

static void a_rate_cannot_be_set_within_a_step(void** state) {
  (void)state;
  rank_run* run = ranks_prepare(1, NULL);
  step_model m = nothing();
  step_session s;
  gsel_error* err = NULL;
  gsel_work work = GSEL_WORK_INIT;
  float g[STEP_WIDTH];
  m.config = STEP_SIGN("6", "");
  check_ok(step_open(run, &m, &s, &err), err);
  check_fails(gsel_trainer_read_gradient(s.trainer, STEP_A, g, sizeof g, &err), err, GSEL_ERR_STATE, "no step is");
  check_ok(gsel_trainer_next_work(s.trainer, &work, &err), err);
  check_fails(gsel_trainer_set_learning_rate(s.trainer, 1, &err), err, GSEL_ERR_STATE, "a step is under way");
  check_fails(gsel_trainer_read_gradient(s.trainer, STEP_A, g, sizeof g, &err), err, GSEL_ERR_STATE, "under way");
  step_close(&s);
  ranks_verdict(run, 1);
}

/* ---- gradients ---- */

static void freeze_b(gsel_param_options* p, gsel_value_options* v, gsel_layer_options* l, const void* m) {
  (void)v, (void)l, (void)m;
  if (p && p->name.data[0] == 'b') p->flags |= GSEL_PARAM_FROZEN;
}

/* Of each step; the norm of what is read is what the report says. */
static void read_gradients(rank_run* run) {
  const trial* t = (const trial*)run->user;
  float* out = t->out + run->rank * N_ELEMS * RUN_STEPS;
  step_session s;
  gsel_error* err = NULL;
  rank_ok(run, step_open(run, &t->m, &s, &err), err);
  for (int i = 0; i < RUN_STEPS; ++i, out += N_ELEMS) {
    gsel_step_report report = GSEL_STEP_REPORT_INIT;
    double squares = 0;
    rank_ok(run, gsel_trainer_step(s.trainer, NULL, &err), err);
    if (i == 1) rank_ok(run, gsel_trainer_evaluate(s.trainer, 0, NULL, NULL, NULL, &err), err);
    rank_ok(run, gsel_trainer_read_gradient(s.trainer, STEP_A, out, sizeof(float) * STEP_WIDTH, &err), err);
    rank_ok(run, gsel_trainer_read_gradient(s.trainer, STEP_B, out + STEP_WIDTH, sizeof(float) * STEP_WIDTH, &err),
            err);
    rank_ok(run, gsel_trainer_report(s.trainer, &report, &err), err);
    for (int k = 0; k < N_ELEMS; ++k) squares += (double)out[k] * out[k];
    rank_check(run, report.validated_step == i && squares > 0);
    rank_check(run, fabs(report.gradient_norm - sqrt(squares)) <= 1e-6 * sqrt(squares));
  }
  rank_fails(run, gsel_trainer_read_gradient(s.trainer, STEP_A, out, 3, &err), err, GSEL_ERR_ARG, "dst has 3 bytes",
             -1);
  rank_fails(run, gsel_trainer_read_gradient(s.trainer, 9, out, 3, &err), err, GSEL_ERR_ARG, "parameter 9", -1);
  step_close(&s);
}

static void gradients_and_their_norm_are_alike_under_each_strategy(void** state) {
  (void)state;
  static const char* const trains[] = {
      STEP_SGD("0.00390625", "8", "microbatches = 2\ngradient_norm = \"always\"\n"),
      STEP_SGD("0.00390625", "8", "microbatches = 2\nclip_norm = 1.0\n"),
      STEP_SGD("0.00390625", "8",
               "microbatches = 2\ngradient_norm = \"always\"\nprecision = \"fp16\"\nloss_scale = 8.0\n"),
  };
  const size_t bytes = sizeof(float) * N_ELEMS * RUN_STEPS;
  float *one = (float*)shared_memory(bytes), *out = (float*)shared_memory(bytes * RANKS_MAX);
  char config[640];
  for (size_t k = 0; k < sizeof trains / sizeof *trains; ++k) {
    trial t = {.m = nothing(), .out = one};
    t.m.config = trains[k];
    as_threads(1, read_gradients, &t);
    t.m.config = config;
    t.out = out;
    for (size_t z = 0; z < N_STEP_EACH_STRATEGY; ++z)
      for (int n = 2; n <= (z < STEP_FIRST_PIPELINE ? 3 : 2); ++n) {
        snprintf(config, sizeof config, "%s%s", kStepEachStrategy[z], trains[k]);
        print_message("  %d ranks %s\n", n, kStepEachStrategy[z]);
        as_threads(n, read_gradients, &t);
        for (int r = 0; r < n; ++r)
          for (int i = 0; i < N_ELEMS * RUN_STEPS; ++i) {
            const float got = out[r * N_ELEMS * RUN_STEPS + i];
            if (fabsf(got - one[i]) > 1e-5f * fabsf(one[i]))
              fail_msg("rank %d, number %d: %g, not %g", r, i, got, one[i]);
          }
      }
  }
  munmap(one, bytes);
  munmap(out, bytes * RANKS_MAX);
}

static gsel_status backward_of_a(const gsel_call* c, void* user) {
  gsel_call all = *c;
  gsel_tensor d_params[STEP_PARAMS] = {c->d_params[STEP_A], c->d_params[STEP_A]};
  float d_b[STEP_WIDTH];
  d_params[STEP_B].data = d_b;
  all.d_params = d_params;
  return c->d_params[STEP_B].data ? GSEL_ERR_INTERNAL : step_backward(&all, user);
}

static void the_norm_is_not_computed_unless_asked_for(void** state) {
  (void)state;
  rank_run* run = ranks_prepare(1, NULL);
  step_model m = nothing();
  step_session s;
  gsel_error* err = NULL;
  gsel_step_report report = GSEL_STEP_REPORT_INIT;
  float g[STEP_WIDTH];
  m.config = STEP_SIGN("6", "");
  m.vary = freeze_b;
  m.backward = backward_of_a;
  check_ok(step_open(run, &m, &s, &err), err);
  check_ok(gsel_trainer_step(s.trainer, &report, &err), err);
  assert_true(report.gradient_norm == 0);
  check_fails(gsel_trainer_read_gradient(s.trainer, STEP_B, g, sizeof g, &err), err, GSEL_ERR_ARG,
              "parameter \"b\" is frozen and has no gradient");
  step_close(&s);
  ranks_verdict(run, 1);
}

static gsel_status any_rule(const gsel_optimizer_call* c, void* user) {
  (void)user;
  for (int64_t i = 0; i < c->count; ++i) c->values[i] -= c->gradient[i];
  return GSEL_OK;
}

static void gradients_that_an_optimizer_may_overwrite_are_not_given(void** state) {
  (void)state;
  rank_run* run = ranks_prepare(1, NULL);
  gsel_optimizer_options optimizer = GSEL_OPTIMIZER_OPTIONS_INIT;
  step_model m = nothing();
  step_session s;
  gsel_error* err = NULL;
  float g[STEP_WIDTH];
  optimizer.step = any_rule;
  m.config = STEP_SIGN("6", "");
  m.optimizer = &optimizer;
  check_ok(step_open(run, &m, &s, &err), err);
  check_ok(gsel_trainer_step(s.trainer, NULL, &err), err);
  check_fails(gsel_trainer_read_gradient(s.trainer, STEP_A, g, sizeof g, &err), err, GSEL_ERR_UNSUPPORTED,
              "may have overwritten gradients");
  step_close(&s);
  ranks_verdict(run, 1);
}

/* ---- the log ---- */

enum { MOST_LINES = 16 };
static char lines[MOST_LINES][256];
static int n_lines;
static pthread_mutex_t lines_lock = PTHREAD_MUTEX_INITIALIZER;

static void keep_line(gsel_log_level level, gsel_str component, gsel_str line, void* user) {
  const char* wanted = (const char*)user;
  if (level != GSEL_LOG_INFO || strncmp(component.data, wanted, component.len) != 0) return;
  pthread_mutex_lock(&lines_lock);
  if (n_lines < MOST_LINES) snprintf(lines[n_lines++], sizeof *lines, "%.*s", (int)line.len, line.data);
  pthread_mutex_unlock(&lines_lock);
}

static void five_steps(rank_run* run) {
  step_model m = nothing();
  step_session s;
  gsel_error* err = NULL;
  m.config = (const char*)run->user;
  rank_ok(run, step_open(run, &m, &s, &err), err);
  for (int i = 0; i < 5; ++i) rank_ok(run, gsel_trainer_step(s.trainer, NULL, &err), err);
  step_close(&s);
}

static int lines_of(const char* component, int ranks, const char* config) {
  n_lines = 0;
  gsel_log_set(keep_line, GSEL_LOG_INFO, (void*)(uintptr_t)component, NULL);
  as_threads(ranks, five_steps, (void*)(uintptr_t)config);
  gsel_log_set(NULL, 0, NULL, NULL);
  return n_lines;
}

static void progress_is_told_where_it_is_asked_for(void** state) {
  (void)state;
  assert_int_equal(lines_of("train", 2, STEP_SGD("0.0", "6", "")), 0);
  assert_int_equal(lines_of("train", 2, STEP_SGD("0.0", "6", "progress_steps = 2\nclip_norm = 1.0\n")), 2);
  assert_int_equal(strncmp(lines[0], "step 1: loss ", 13), 0);
  assert_int_equal(strncmp(lines[1], "step 3: loss ", 13), 0);
  assert_non_null(strstr(lines[0], ", gradient norm "));
  assert_non_null(strstr(lines[0], ", learning rate 0, "));
  assert_non_null(strstr(lines[0], " samples/s"));
  assert_int_equal(lines_of("train", 2, STEP_SGD("0.0", "6", "progress_steps = 1\n")), 5);
}

static void a_decay_by_default_is_told_when_it_applies(void** state) {
  (void)state;
  assert_int_equal(lines_of("config", 2, "[train]\nbatch = 6\n"), 1);
  assert_non_null(strstr(lines[0], "train.weight_decay is not set and is 0.01 by default: it applies to 2 of 2"));
  assert_int_equal(lines_of("config", 2, "[train]\nbatch = 6\nweight_decay = 0.01\n"), 0);
  assert_int_equal(lines_of("config", 2, "[train]\nbatch = 6\nweight_decay = 0.0\n"), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_wsd_schedule_warms_up_stays_and_falls),
      cmocka_unit_test(a_learning_rate_that_is_set_holds_from_the_next_step_on),
      cmocka_unit_test(ranks_that_set_other_rates_are_told),
      cmocka_unit_test(a_rate_cannot_be_set_within_a_step),
      cmocka_unit_test(gradients_and_their_norm_are_alike_under_each_strategy),
      cmocka_unit_test(the_norm_is_not_computed_unless_asked_for),
      cmocka_unit_test(gradients_that_an_optimizer_may_overwrite_are_not_given),
      cmocka_unit_test(progress_is_told_where_it_is_asked_for),
      cmocka_unit_test(a_decay_by_default_is_told_when_it_applies),
  };
  return cmocka_run_group_tests_name("step controls", tests, NULL, NULL);
}
