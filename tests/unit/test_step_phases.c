/* Phases of layers, and gradients that a backward does not produce: with integers, so that any number of ranks must
 * give the single rank's numbers bit for bit. */
#include "support/counts.h"
#include "support/step_model.h"

enum { RUN_STEPS = 3 };

typedef struct result {
  float params[STEP_PARAMS * STEP_WIDTH];
  double loss[RUN_STEPS];
} result;

typedef struct trial {
  step_model m;
  int pull;
  const result* expected;
  result* out;         /* [world_size] */
  const int32_t* used; /* param_used after the run, by rank; NULL: not asked */
} trial;

static gsel_status call(const gsel_work* work, step_session* s) {
  if (work->input) return step_data(work->input, &s->m);
  if (work->call->layer == 1)
    return work->kind == GSEL_FORWARD ? step_loss_forward(work->call, NULL) : step_loss_backward(work->call, NULL);
  return (work->kind == GSEL_FORWARD ? s->m.forward : s->m.backward)(work->call, &s->m);
}

static gsel_status pull_step(step_session* s, gsel_error** err) {
  for (;;) {
    gsel_work work = GSEL_WORK_INIT;
    const gsel_str none = {NULL, 0};
    gsel_status status = gsel_trainer_next_work(s->trainer, &work, err);
    if (status || work.kind == GSEL_WORK_DONE) return status;
    status = gsel_trainer_complete(s->trainer, work.ticket, call(&work, s), none, err);
    if (status) return status;
  }
}

static void run_steps(rank_run* run) {
  const trial* t = (const trial*)run->user;
  result* out = &t->out[run->rank];
  step_session s;
  gsel_error* err = NULL;
  rank_ok(run, step_open(run, &t->m, &s, &err), err);
  for (int i = 0; i < RUN_STEPS; ++i) {
    gsel_step_report report = GSEL_STEP_REPORT_INIT;
    rank_ok(run, t->pull ? pull_step(&s, &err) : gsel_trainer_step(s.trainer, NULL, &err), err);
    rank_ok(run, gsel_trainer_report(s.trainer, &report, &err), err);
    out->loss[i] = report.loss_sum;
  }
  rank_ok(run, step_params(s.trainer, out->params, &err), err);
  for (int p = 0; t->used && p < STEP_PARAMS; ++p)
    rank_check(run, gsel_trainer_param_used(s.trainer, p) == t->used[run->rank * STEP_PARAMS + p]);
  if (t->expected) rank_check(run, memcmp(out, t->expected, sizeof *out) == 0);
  step_close(&s);
}

/* On one rank, then the same numbers from 2 and 3 under each strategy, pushed and pulled. */
static void equals_one_rank(step_model m, const char* train) {
  result *expected = (result*)shared_memory(sizeof *expected), *out = (result*)shared_memory(RANKS_MAX * sizeof *out);
  char config[512];
  m.config = train;
  trial t = {m, 0, NULL, expected, NULL};
  as_threads(1, run_steps, &t);
  for (int i = 0; i < RUN_STEPS; ++i) assert_true(expected->loss[i] > 0 && expected->loss[i] < 16777216);
  t.expected = expected;
  t.out = out;
  for (size_t k = 0; k < 2 * N_STEP_STRATEGIES; ++k)
    for (int n = 1; n <= 3; ++n) {
      snprintf(config, sizeof config, "%s%s", kStepStrategies[k / 2], train);
      t.m.config = config;
      t.pull = k % 2;
      print_message("  %d ranks, %s: %s", n, t.pull ? "pulled" : "pushed", kStepStrategies[k / 2]);
      as_threads(n, run_steps, &t);
    }
  munmap(expected, sizeof *expected);
  munmap(out, RANKS_MAX * sizeof *out);
}

/* ---- batch statistics: y = a * x + b - sum over the batch of a * x + largest and least x, in three phases ---------
 */

static const gsel_phase kForward[] = {{sizeof(gsel_phase), 0, GSEL_AXIS_DATA, GSEL_SUM, GSEL_F32, 0, STEP_WIDTH, 0},
                                      {sizeof(gsel_phase), 0, GSEL_AXIS_DATA, GSEL_MAX, GSEL_F64, 0, 1, 0},
                                      {sizeof(gsel_phase), 0, GSEL_AXIS_DATA, GSEL_MIN, GSEL_F32, 0, STEP_WIDTH, 0}};
static const gsel_phase kBackward[] = {{sizeof(gsel_phase), 0, GSEL_AXIS_DATA, GSEL_SUM, GSEL_F64, 0, STEP_WIDTH, 0}};

static gsel_status statistics_forward(const gsel_call* c, void* user) {
  const float *x = (const float*)c->inputs[0].data, *a = (const float*)c->params[STEP_A].data,
              *b = (const float*)c->params[STEP_B].data;
  float *y = (float*)c->outputs[0].data, *sum = (float*)c->reductions[0].data, *least = (float*)c->reductions[2].data;
  double* most = (double*)c->reductions[1].data;
  const int64_t n = c->n_samples * STEP_WIDTH;
  (void)user;
  if (c->n_reductions != 3 || c->reductions[0].n_elems != STEP_WIDTH || c->reductions[1].dtype != GSEL_F64 || n == 0)
    return GSEL_ERR_INTERNAL;
  switch (c->phase) {
    case 0:
      memset(sum, 0, sizeof(float) * STEP_WIDTH);
      for (int64_t i = 0; i < n; ++i) sum[i % STEP_WIDTH] += a[i % STEP_WIDTH] * x[i];
      for (int64_t i = 0; i < n; ++i) y[i] = a[i % STEP_WIDTH] * x[i]; /* outputs stay from phase to phase */
      ((float*)c->saved)[0] = 77;
      return GSEL_OK;
    case 1:
      *most = -1000;
      for (int64_t i = 0; i < n; ++i) *most = x[i] > *most ? x[i] : *most;
      for (int64_t i = 0; i < n; ++i) y[i] += b[i % STEP_WIDTH] - sum[i % STEP_WIDTH];
      return GSEL_OK;
    case 2:
      for (int k = 0; k < STEP_WIDTH; ++k) least[k] = 1000;
      for (int64_t i = 0; i < n; ++i)
        least[i % STEP_WIDTH] = x[i] < least[i % STEP_WIDTH] ? x[i] : least[i % STEP_WIDTH];
      return ((float*)c->saved)[0] == 77 ? GSEL_OK : GSEL_ERR_INTERNAL;
    default:
      for (int64_t i = 0; i < n; ++i) y[i] += (float)*most + least[i % STEP_WIDTH];
      memcpy(c->saved, sum, sizeof(float));
      return GSEL_OK;
  }
}

static gsel_status statistics_backward(const gsel_call* c, void* user) {
  const float *x = (const float*)c->inputs[0].data, *dy = (const float*)c->d_outputs[0].data;
  float *da = (float*)c->d_params[STEP_A].data, *db = (float*)c->d_params[STEP_B].data;
  double* sum = (double*)c->reductions[0].data; /* of dy, over the batch */
  const int64_t n = c->n_samples * STEP_WIDTH;
  (void)user;
  if (c->n_reductions != 1 || n == 0) return GSEL_ERR_INTERNAL;
  if (c->phase == 0) {
    for (int k = 0; k < STEP_WIDTH; ++k) sum[k] = 0;
    for (int64_t i = 0; i < n; ++i) sum[i % STEP_WIDTH] += dy[i];
    step_clear(c, STEP_B);
    for (int64_t i = 0; i < n; ++i) db[i % STEP_WIDTH] += dy[i];
    step_clear(c, STEP_A); /* gradients stay from phase to phase */
    return GSEL_OK;
  }
  for (int64_t i = 0; i < n; ++i) da[i % STEP_WIDTH] += (dy[i] - (float)sum[i % STEP_WIDTH]) * x[i];
  return GSEL_OK;
}

static step_model statistics(void) {
  step_model m;
  memset(&m, 0, sizeof m);
  m.forward = statistics_forward;
  m.backward = statistics_backward;
  m.forward_phases = kForward;
  m.n_forward_phases = 3;
  m.backward_phases = kBackward;
  m.n_backward_phases = 1;
  m.saved_bytes_per_sample = 4;
  return m;
}

static void batch_statistics_over_the_data_axis_equal_one_rank(void** state) {
  (void)state;
  equals_one_rank(statistics(), STEP_SIGN("6", ""));
}
static void a_rank_without_samples_joins_the_reductions_of_phases(void** state) {
  (void)state;
  equals_one_rank(statistics(), STEP_SIGN("2", ""));
}
static void phases_work_on_lent_copies_too(void** state) {
  (void)state;
  equals_one_rank(statistics(), STEP_SIGN("5", "lending = \"moved\"\n"));
}

static gsel_status fails_in_phase_2(const gsel_call* c, void* user) {
  const step_model* m = (const step_model*)user;
  if (c->phase != 2 || m->rank != 1 || c->step != 1) return statistics_forward(c, user);
  snprintf(c->message, c->message_capacity, "no least number");
  return GSEL_ERR_INTERNAL;
}

static void fail_in_phase(rank_run* run) {
  step_session s;
  gsel_error* err = NULL;
  rank_ok(run, step_open(run, (const step_model*)run->user, &s, &err), err);
  rank_ok(run, gsel_trainer_step(s.trainer, NULL, &err), err);
  rank_fails(run, gsel_trainer_step(s.trainer, NULL, &err), err, run->rank == 1 ? GSEL_ERR_CALLBACK : GSEL_ERR_ABORTED,
             "layer \"line\" failed in forward phase 2 on rank 1, step 1, micro-batch 0: no least number", -1);
  step_close(&s);
}

static void a_failure_between_phases_ends_the_step_on_every_rank(void** state) {
  (void)state;
  step_model m = statistics();
  m.config = STEP_SIGN("6", "");
  m.forward = fails_in_phase_2;
  as_threads(3, fail_in_phase, &m);
}

static void count_phases(rank_run* run) {
  step_session s;
  gsel_error* err = NULL;
  rank_ok(run, step_open(run, (const step_model*)run->user, &s, &err), err);
  for (int i = 0; i < 2; ++i) rank_ok(run, gsel_trainer_step(s.trainer, NULL, &err), err);
  rank_check(run, trainer_counts(s.trainer, GSEL_FORWARD, GSEL_AXIS_DATA).calls == 6);
  rank_check(run, trainer_counts(s.trainer, GSEL_BACKWARD_INPUT, GSEL_AXIS_DATA).calls == 2);
  rank_check(run, trainer_counts(s.trainer, GSEL_INSTR_ALLREDUCE, GSEL_AXIS_DATA).calls == 2);
  rank_check(run, trainer_counts(s.trainer, GSEL_INSTR_LOSS_ALLREDUCE, GSEL_AXIS_DATA).calls == 2);
  step_close(&s);
}

static void reductions_of_phases_are_counted_by_direction(void** state) {
  (void)state;
  step_model m = statistics();
  m.config = STEP_SIGN("6", "");
  as_threads(2, count_phases, &m);
}

/* ---- gradients not produced ---------------------------------------------------------------------------------------
 */

/* Whether this call, by the lowest sample id of it, produces the gradient of p. */
static int produces(const gsel_call* c, int p) {
  return (c->sample_ids[0] + p) % 2;
}

static gsel_status produces_some(const gsel_call* c, void* user) {
  float keep[STEP_PARAMS][STEP_WIDTH];
  for (int p = 0; p < STEP_PARAMS; ++p) {
    if (!c->produced[p]) return GSEL_ERR_INTERNAL;
    memcpy(keep[p], c->d_params[p].data, sizeof keep[p]);
  }
  const gsel_status status = step_backward(c, user);
  for (int p = 0; p < STEP_PARAMS; ++p) {
    if (produces(c, p)) continue;
    memcpy(c->d_params[p].data, keep[p], sizeof keep[p]); /* as if it had not been written */
    c->produced[p] = 0;
  }
  return status;
}

/* The same in full: zeros where the other leaves out. */
static gsel_status produces_zeros(const gsel_call* c, void* user) {
  float keep[STEP_PARAMS][STEP_WIDTH];
  for (int p = 0; p < STEP_PARAMS; ++p) memcpy(keep[p], c->d_params[p].data, sizeof keep[p]);
  const gsel_status status = step_backward(c, user);
  for (int p = 0; p < STEP_PARAMS; ++p)
    for (int i = 0; i < STEP_WIDTH && !produces(c, p); ++i)
      ((float*)c->d_params[p].data)[i] = c->accumulate ? keep[p][i] : 0;
  return status;
}

static void a_gradient_not_produced_is_zero(void** state) {
  (void)state;
  result *expected = (result*)shared_memory(sizeof *expected), *out = (result*)shared_memory(RANKS_MAX * sizeof *out);
  static const char* const trains[] = {STEP_SIGN("6", "microbatch = 1\n"), STEP_SIGN("6", "microbatch = 3\n"),
                                       STEP_SIGN("1", ""), STEP_SIGN("6", "microbatch = 1\nlending = \"moved\"\n")};
  char config[512];
  for (size_t k = 0; k < sizeof trains / sizeof *trains; ++k) {
    trial t;
    memset(&t, 0, sizeof t);
    t.m.config = trains[k];
    t.m.backward = produces_zeros;
    t.out = expected;
    as_threads(1, run_steps, &t);
    t.m.backward = produces_some;
    t.out = out;
    t.expected = expected;
    as_threads(1, run_steps, &t);
    for (size_t z = 0; z < N_STEP_STRATEGIES && k != 1; ++z) { /* case 1 depends on how samples are cut */
      snprintf(config, sizeof config, "%s%s", kStepStrategies[z], trains[k]);
      t.m.config = config;
      as_threads(2, run_steps, &t);
    }
  }
  munmap(expected, sizeof *expected);
  munmap(out, RANKS_MAX * sizeof *out);
}

static void param_used_tells_what_a_rank_produced(void** state) {
  (void)state;
  result* out = (result*)shared_memory(RANKS_MAX * sizeof *out);
  /* Two ranks, one sample each, steps of ids {0, 1}, {2, 3}, {4, 5}: rank 0 has even ids and produces b alone. */
  static const int32_t used[] = {0, 1, 1, 0};
  trial t;
  memset(&t, 0, sizeof t);
  t.m.config = STEP_SIGN("2", "");
  t.m.backward = produces_some;
  t.out = out;
  t.used = used;
  as_threads(2, run_steps, &t);
  munmap(out, RANKS_MAX * sizeof *out);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(batch_statistics_over_the_data_axis_equal_one_rank),
      cmocka_unit_test(a_rank_without_samples_joins_the_reductions_of_phases),
      cmocka_unit_test(phases_work_on_lent_copies_too),
      cmocka_unit_test(a_failure_between_phases_ends_the_step_on_every_rank),
      cmocka_unit_test(reductions_of_phases_are_counted_by_direction),
      cmocka_unit_test(a_gradient_not_produced_is_zero),
      cmocka_unit_test(param_used_tells_what_a_rank_produced),
  };
  return cmocka_run_group_tests_name("step phases", tests, NULL, NULL);
}
