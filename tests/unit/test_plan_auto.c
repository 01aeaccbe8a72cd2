/* unit/test_plan_auto.c: [strategy] plan = "auto": the machine is measured when the trainer is made, all ranks take the
 * same layout, and train as one rank does; what the file decides stays. */
#include "support/step_equals.h"

#define AUTO_PLAN "[strategy]\nplan = \"auto\"\n"

static char told[512]; /* the log's line of component plan */

static void keep_line(gsel_log_level level, gsel_str component, gsel_str line, void* user) {
  (void)level, (void)user;
  if (!strcmp(component.data, "plan")) snprintf(told, sizeof told, "%s", line.data);
}

static void train(rank_run* run) {
  const char* config = (const char*)run->user;
  step_model m = nothing();
  step_session s;
  gsel_error* err = NULL;
  float params[N_ELEMS], alone[N_ELEMS];
  m.config = config;
  rank_ok(run, step_open(run, &m, &s, &err), err);
  for (int i = 0; i < 3; ++i) rank_ok(run, gsel_trainer_step(s.trainer, NULL, &err), err);
  rank_ok(run, step_params(s.trainer, params, &err), err);
  step_close(&s);

  rank_run* one = ranks_prepare(1, NULL);
  m.config = STEP_SIGN("8", "");
  rank_ok(run, step_open(one, &m, &s, &err), err);
  for (int i = 0; i < 3; ++i) rank_ok(run, gsel_trainer_step(s.trainer, NULL, &err), err);
  rank_ok(run, step_params(s.trainer, alone, &err), err);
  step_close(&s);
  ranks_verdict(one, 1);
  rank_check(run, memcmp(params, alone, sizeof params) == 0);
}

static void ranks_train_as_one_does(void** state) {
  (void)state;
  gsel_log_set(keep_line, GSEL_LOG_INFO, NULL, NULL);
  for (int ranks = 1; ranks <= 4; ranks *= 2) {
    told[0] = 0;
    as_threads(ranks, train, (void*)(uintptr_t)(AUTO_PLAN STEP_SIGN("8", "")));
    char* at = strstr(told, "took ");
    if (!at || !strstr(told, "ms a step are forecast")) fail_msg("%d ranks: the log said \"%s\"", ranks, told);
  }
  gsel_log_set(NULL, GSEL_LOG_ERROR, NULL, NULL);
}

static void what_the_file_decides_stays(void** state) {
  (void)state;
  gsel_log_set(keep_line, GSEL_LOG_INFO, NULL, NULL);
  as_threads(2, train, (void*)(uintptr_t)("[mesh]\npipeline = 2\n" AUTO_PLAN STEP_SIGN("8", "")));
  if (!strstr(told, "took pipeline 2")) fail_msg("the log said \"%s\"", told);
  gsel_log_set(NULL, GSEL_LOG_ERROR, NULL, NULL);
}

static void what_it_cannot_choose_is_refused(void** state) {
  (void)state;
  static const struct {
    const char *config, *message;
  } refused[] = {
      {AUTO_PLAN STEP_DDP STEP_SIGN("8", ""),
       "step.toml:4: [strategy.data] conflicts with strategy.plan = \"auto\", which chooses strategies; remove one"},
      {"[mesh]\npipeline = 3\ndata = 1\n" AUTO_PLAN STEP_SIGN("8", ""),
       "step.toml:5: strategy.plan = \"auto\" found no layout that runs; none has these sizes"},
      {"[strategy]\nplan = \"some\"\n",
       "step.toml:2: strategy.plan = \"some\" is not known; expected \"none\" or \"auto\""},
      {"[strategy]\nplan = 1\n", "step.toml:2: strategy.plan = 1 is an integer"},
  };
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

static void refuse_batch(rank_run* run) {
  step_model m = nothing();
  step_session s;
  gsel_error* err = NULL;
  m.config = (const char*)run->user;
  rank_fails(
      run, step_open(run, &m, &s, &err), err, GSEL_ERR_CONFIG,
      "train.batch = 3 does not divide by 2 replicas, the fewest of any layout of 4 ranks; accepted: multiples of "
      "2, such as 2 and 4",
      -1);
  step_close(&s);
}

static void a_batch_that_no_mesh_divides_is_named(void** state) {
  (void)state;
  as_threads(4, refuse_batch, (void*)(uintptr_t)("[mesh]\npipeline = 2\ndata = 2\n" AUTO_PLAN STEP_SIGN("3", "")));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(ranks_train_as_one_does),
      cmocka_unit_test(what_the_file_decides_stays),
      cmocka_unit_test(what_it_cannot_choose_is_refused),
      cmocka_unit_test(a_batch_that_no_mesh_divides_is_named),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
