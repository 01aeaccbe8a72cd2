/* The embedder's optimizer in a step: what it is called with, that it steps every element once wherever it lies, and
 * how its failure ends the step. */
#include "support/step_equals.h"

typedef struct momentum {
  int fail_at; /* t, or 0 */
  int rank;    /* to fail on */
} momentum;

/* SGD with momentum 1/2 and without scale: sign of a sum of signs. Its state is as old as t says. */
static gsel_status own_rule(const gsel_optimizer_call* c, void* user) {
  const momentum* rule = (const momentum*)user;
  if (rule && c->t == rule->fail_at) {
    snprintf(c->message, c->message_capacity, "no patience left");
    return GSEL_ERR_INTERNAL;
  }
  if (c->n_states != 2 || c->phase != 0 || c->first < 0 || c->first + c->count > STEP_WIDTH || c->n_dims != 1)
    return GSEL_ERR_INTERNAL;
  for (int64_t i = 0; i < c->count; ++i) {
    if (c->states[1][i] != (float)(c->t - 1)) return GSEL_ERR_INTERNAL;
    c->states[1][i] = (float)c->t;
    c->states[0][i] += (float)((c->gradient[i] > 0) - (c->gradient[i] < 0));
    c->values[i] -= (float)c->learning_rate * c->states[0][i];
  }
  return GSEL_OK;
}

static gsel_status whole_rule(const gsel_optimizer_call* c, void* user) {
  return c->first == 0 && c->count == STEP_WIDTH ? own_rule(c, user) : GSEL_ERR_INTERNAL;
}

static void the_embedders_optimizer_steps_every_element_once(void** state) {
  (void)state;
  gsel_optimizer_options options = GSEL_OPTIMIZER_OPTIONS_INIT, whole = GSEL_OPTIMIZER_OPTIONS_INIT;
  options.n_states = whole.n_states = 2;
  options.step = own_rule;
  whole.step = whole_rule;
  whole.needs = GSEL_NEEDS_WHOLE_PARAM;
  step_model m = nothing(), other = nothing();
  m.optimizer = &options;
  other.optimizer = &whole;
  equals(&m, STEP_SIGN("6", ""), &m, STEP_SIGN("6", "microbatch = 1\n"));
  equals(&m, STEP_SIGN("6", ""), &other, STEP_SIGN("6", ""));
  equals(&m, STEP_SIGN("6", ""), &other, STEP_SIGN("6", "precision = \"bf16\"\n"));
}

static void fail_in_optimizer(rank_run* run) {
  momentum rule = {2, 1};
  step_model m = nothing();
  gsel_optimizer_options options = GSEL_OPTIMIZER_OPTIONS_INIT;
  step_session s;
  gsel_error* err = NULL;
  if (run->rank != rule.rank) rule.fail_at = 0;
  options.n_states = 2;
  options.step = own_rule;
  options.user_data = &rule;
  m.config = STEP_ZERO("1") STEP_SIGN("6", "");
  m.optimizer = &options;
  rank_ok(run, step_open(run, &m, &s, &err), err);
  rank_ok(run, gsel_trainer_step(s.trainer, NULL, &err), err);
  rank_fails(run, gsel_trainer_step(s.trainer, NULL, &err), err,
             run->rank == rule.rank ? GSEL_ERR_CALLBACK : GSEL_ERR_ABORTED,
             "on rank 1, step 1: the optimizer failed on parameter \"", -1);
  rank_fails(run, gsel_trainer_step(s.trainer, NULL, &err), err, GSEL_ERR_STATE, "an earlier step failed", -1);
  step_close(&s);
}

static void a_failing_optimizer_ends_the_step_on_every_rank(void** state) {
  (void)state;
  as_threads(2, fail_in_optimizer, NULL);
}

static void disagree(rank_run* run) {
  gsel_optimizer_options options = GSEL_OPTIMIZER_OPTIONS_INIT;
  step_model m = nothing();
  step_session s;
  gsel_error* err = NULL;
  options.n_states = 1 + run->rank;
  options.step = own_rule;
  m.config = STEP_SIGN("6", "");
  m.optimizer = &options;
  rank_fails(run, step_open(run, &m, &s, &err), err, GSEL_ERR_MISMATCH,
             "the optimizer differs between rank 0 and rank 1", -1);
  step_close(&s);
}

static void ranks_with_other_optimizers_are_refused(void** state) {
  (void)state;
  as_threads(2, disagree, NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_embedders_optimizer_steps_every_element_once),
      cmocka_unit_test(a_failing_optimizer_ends_the_step_on_every_rank),
      cmocka_unit_test(ranks_with_other_optimizers_are_refused),
  };
  return cmocka_run_group_tests_name("step optimizer", tests, NULL, NULL);
}
