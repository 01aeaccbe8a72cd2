/* An evaluation changes nothing: parameters, reports, counts and noise of the steps around it are as without it. Its
 * loss is that of the step that would train on the same samples. */
#include "support/counts.h"
#include "support/step_model.h"
#include "support/trainer_trial.h"

enum { BATCH = 6 };

typedef struct evaluated {
  const char* section;
  outcome* expected; /* of the same steps without evaluation */
} evaluated;

static gsel_status pull_evaluation(session* s, int64_t first, gsel_step_report* report, gsel_error** err) {
  const gsel_status status = gsel_trainer_begin_evaluation(s->trainer, first, err);
  return status ? status : pull_step(s->trainer, &s->m, report, err);
}

static void compare_reports(rank_run* run, const gsel_step_report* a, const gsel_step_report* b) {
  rank_check(run, a->step == b->step && a->loss_sum == b->loss_sum && a->weight == b->weight &&
                      a->bytes_sent == b->bytes_sent && a->n_reduces == b->n_reduces);
}

static void evaluate_between_steps(rank_run* run) {
  const evaluated* e = (const evaluated*)run->user;
  char config[512];
  outcome out;
  session s;
  gsel_error* err = NULL;
  memset(&out, 0, sizeof out);
  snprintf(config, sizeof config, "%s%s", e->section, TRAIN("6", "microbatch = 2\n"));
  trial t = plain(config, &out - run->rank);
  run->user = &t;
  rank_ok(run, open_session(run, &s, &err), err);
  for (int i = 0; i < STEPS; ++i) {
    gsel_step_report pushed = GSEL_STEP_REPORT_INIT, pulled = GSEL_STEP_REPORT_INIT, step = GSEL_STEP_REPORT_INIT,
                     last = GSEL_STEP_REPORT_INIT;
    const gsel_comm_count before = trainer_counts(s.trainer, GSEL_INSTR_LOSS_ALLREDUCE, GSEL_AXIS_DATA);
    rank_ok(run, gsel_trainer_evaluate(s.trainer, i * BATCH, NULL, NULL, &pushed, &err), err);
    rank_ok(run, pull_evaluation(&s, i * BATCH, &pulled, &err), err);
    rank_ok(run, gsel_trainer_evaluate(s.trainer, 1000, exact_data, NULL, NULL, &err), err);
    const gsel_comm_count after = trainer_counts(s.trainer, GSEL_INSTR_LOSS_ALLREDUCE, GSEL_AXIS_DATA);
    rank_check(run, before.calls == after.calls && before.bytes_sent == after.bytes_sent);
    if (i > 0) { /* the last step's again, now that the evaluation's was given once */
      rank_ok(run, gsel_trainer_report(s.trainer, &last, &err), err);
      rank_check(run, last.step == i - 1 && last.loss_sum == out.loss[i - 1]);
    } else {
      rank_fails(run, gsel_trainer_report(s.trainer, &last, &err), err, GSEL_ERR_STATE, "no step is finished", -1);
    }
    rank_ok(run, gsel_trainer_step(s.trainer, &step, &err), err);
    rank_check(run, step.step == i);
    rank_check(run, pushed.loss_sum == step.loss_sum && pushed.weight == step.weight && pushed.step == i);
    compare_reports(run, &pushed, &pulled);
    rank_check(run, pushed.n_reduces == 0 && pushed.gradient_norm == 0);
    out.loss[i] = step.loss_sum;
    out.weight[i] = step.weight;
  }
  read_params(run, s.trainer, out.params);
  close_session(&s);
  if (!run->failure[0]) compare_outcomes(run, &out, e->expected);
}

static void an_evaluation_changes_nothing_and_tells_the_loss_of_its_batch(void** state) {
  (void)state;
  const trial like = plain(NULL, NULL);
  evaluated e = {NULL, exact_reference(&like, TRAIN("6", "microbatch = 2\n"))};
  static const char* const sections[] = {
      "", ZERO("1", ""), ZERO("2", ""), ZERO("3", ALL_SHARDED), ZERO("3", ALL_SHARDED "keep = \"step\"\n"), DP("")};
  for (size_t z = 0; z < sizeof sections / sizeof *sections; ++z)
    for (int n = 1; n <= 3; ++n) {
      e.section = sections[z];
      print_message("  %d ranks %s", n, z ? sections[z] : "by default\n");
      as_threads(n, evaluate_between_steps, &e);
    }
  free_outcomes(e.expected);
}

/* ---- noise, and what a callback is told ---- */

typedef struct told {
  uint64_t keys[2]; /* of the last evaluation, of the last step */
  int64_t steps[2];
  int backwards_in_evaluation;
} told;

static gsel_status tells_forward(const gsel_call* c, void* user) {
  told* t = (told*)((step_model*)user)->user;
  t->keys[!c->evaluating] = c->rng_key;
  t->steps[!c->evaluating] = c->step;
  return step_forward(c, user);
}
static gsel_status tells_backward(const gsel_call* c, void* user) {
  ((told*)((step_model*)user)->user)->backwards_in_evaluation += c->evaluating;
  return step_backward(c, user);
}

static void noise_of_an_evaluation_is_that_of_the_next_step(void** state) {
  (void)state;
  told t;
  memset(&t, 0, sizeof t);
  step_model m;
  memset(&m, 0, sizeof m);
  m.config = STEP_SIGN("4", "");
  m.forward = tells_forward;
  m.backward = tells_backward;
  m.user = &t;
  rank_run* run = ranks_prepare(1, NULL);
  step_session s;
  gsel_error* err = NULL;
  check_ok(step_open(run, &m, &s, &err), err);
  for (int i = 0; i < 3; ++i) {
    const uint64_t earlier = t.keys[1];
    check_ok(gsel_trainer_evaluate(s.trainer, 0, NULL, NULL, NULL, &err), err);
    assert_int_equal(t.steps[0], i);
    assert_true(i == 0 || t.keys[0] != earlier);
    check_ok(gsel_trainer_step(s.trainer, NULL, &err), err);
    assert_true(t.keys[0] == t.keys[1] && t.steps[1] == i);
  }
  assert_int_equal(t.backwards_in_evaluation, 0);
  step_close(&s);
  ranks_verdict(run, 1);
}

/* ---- order of calls ---- */

static void an_evaluation_under_way_excludes_steps_and_the_other_way_round(void** state) {
  (void)state;
  static const gsel_str none = {NULL, 0};
  rank_run* run = ranks_prepare(1, NULL);
  trial t = plain(TRAIN("2", ""), NULL);
  run->user = &t;
  session s;
  gsel_error* err = NULL;
  gsel_work work = GSEL_WORK_INIT;
  float table[VOCAB * WIDTH];
  check_ok(open_session(run, &s, &err), err);
  check_fails(gsel_trainer_begin_evaluation(s.trainer, -1, &err), err, GSEL_ERR_ARG, "first_sample is -1");
  check_ok(gsel_trainer_begin_evaluation(s.trainer, 0, &err), err);
  check_fails(gsel_trainer_step(s.trainer, NULL, &err), err, GSEL_ERR_STATE, "under way");
  check_fails(gsel_trainer_begin_evaluation(s.trainer, 0, &err), err, GSEL_ERR_STATE, "under way");
  check_ok(gsel_trainer_next_work(s.trainer, &work, &err), err);
  assert_int_equal(work.kind, GSEL_INPUT);
  check_fails(gsel_trainer_evaluate(s.trainer, 0, NULL, NULL, NULL, &err), err, GSEL_ERR_STATE, "under way");
  check_fails(gsel_trainer_read_param(s.trainer, P_TABLE, table, sizeof table, &err), err, GSEL_ERR_STATE, "under way");
  check_fails(gsel_trainer_complete(s.trainer, work.ticket, GSEL_ERR_IO, gsel_str_from("disk full"), &err), err,
              GSEL_ERR_CALLBACK,
              "input \"tokens\" failed in input on rank 0, evaluation before step 0, micro-batch 0: disk full");
  check_fails(gsel_trainer_complete(s.trainer, work.ticket, GSEL_OK, none, &err), err, GSEL_ERR_STATE,
              "none is handed");
  check_fails(gsel_trainer_evaluate(s.trainer, 0, NULL, NULL, NULL, &err), err, GSEL_ERR_STATE,
              "an earlier step failed");
  close_session(&s);
  ranks_verdict(run, 1);
}

/* What was pulled waits for its report, whatever is evaluated after it; a step that begins takes it away. */
static void a_pulled_evaluation_is_told_once_and_no_other_in_its_place(void** state) {
  (void)state;
  rank_run* run = ranks_prepare(1, NULL);
  trial t = plain(TRAIN("2", ""), NULL);
  run->user = &t;
  session s;
  gsel_error* err = NULL;
  gsel_work work = GSEL_WORK_INIT;
  gsel_step_report first = GSEL_STEP_REPORT_INIT, other = GSEL_STEP_REPORT_INIT, last = GSEL_STEP_REPORT_INIT;
  check_ok(open_session(run, &s, &err), err);
  check_ok(gsel_trainer_evaluate(s.trainer, 0, NULL, NULL, &first, &err), err);
  check_ok(gsel_trainer_begin_evaluation(s.trainer, 0, &err), err);
  check_ok(pull_works(s.trainer, &s.m, &err), err);
  check_ok(gsel_trainer_evaluate(s.trainer, 1000, NULL, NULL, &other, &err), err);
  assert_true(first.loss_sum != other.loss_sum);
  check_ok(gsel_trainer_report(s.trainer, &last, &err), err);
  assert_true(last.loss_sum == first.loss_sum);
  check_fails(gsel_trainer_report(s.trainer, &last, &err), err, GSEL_ERR_STATE, "no step is finished");
  check_ok(gsel_trainer_begin_evaluation(s.trainer, 0, &err), err);
  check_ok(pull_works(s.trainer, &s.m, &err), err);
  check_ok(gsel_trainer_next_work(s.trainer, &work, &err), err);
  check_fails(gsel_trainer_report(s.trainer, &last, &err), err, GSEL_ERR_STATE, "no step is finished");
  close_session(&s);
  ranks_verdict(run, 1);
}

/* ---- parameters and values between steps, where no rank has them whole ---- */

typedef struct asked {
  const char* config;
  float* logits; /* [2 * TOKENS * VOCAB] of one rank */
  int holds;
} asked;

static void ask(rank_run* run) {
  const asked* a = (const asked*)run->user;
  trial t = plain(a->config, NULL);
  session s;
  gsel_error* err = NULL;
  float logits[2 * TOKENS * VOCAB], again[2 * TOKENS * VOCAB];
  run->user = &t;
  rank_ok(run, open_session(run, &s, &err), err);
  run->user = (void*)(uintptr_t)a;
  rank_check(run, gsel_trainer_holds_params(s.trainer) == (run->world_size == 1 || a->holds));
  for (int i = 0; i < 2; ++i) rank_ok(run, gsel_trainer_step(s.trainer, NULL, &err), err);
  for (int i = 0; i < 2; ++i)
    rank_ok(run, gsel_trainer_infer(s.trainer, V_LOGITS, 2, exact_data, NULL, i ? again : logits, sizeof logits, &err),
            err);
  rank_check(run, memcmp(logits, again, sizeof logits) == 0);
  rank_ok(run, gsel_trainer_step(s.trainer, NULL, &err), err); /* windows are closed again */
  close_session(&s);
  if (run->world_size == 1)
    memcpy(a->logits, logits, sizeof logits);
  else
    rank_check(run, memcmp(a->logits, logits, sizeof logits) == 0);
}

static gsel_status no_second_rank(const gsel_data_request* r, void* user) {
  return *(const int*)user == 1 ? GSEL_ERR_IO : exact_data(r, NULL);
}

/* A rank whose data fails gives the others its shards all the same. */
static void ask_and_fail_on_one(rank_run* run) {
  const asked* a = (const asked*)run->user;
  trial t = plain(a->config, NULL);
  session s;
  gsel_error* err = NULL;
  float logits[2 * TOKENS * VOCAB];
  int rank = run->rank;
  run->user = &t;
  rank_ok(run, open_session(run, &s, &err), err);
  const gsel_status status =
      gsel_trainer_infer(s.trainer, V_LOGITS, 2, no_second_rank, &rank, logits, sizeof logits, &err);
  if (rank == 1)
    rank_fails(run, status, err, GSEL_ERR_CALLBACK, "input \"tokens\" failed in an inference", -1);
  else
    rank_ok(run, status, err);
  rank_ok(run, gsel_trainer_step(s.trainer, NULL, &err), err);
  close_session(&s);
}

static void inference_gathers_what_a_rank_does_not_have(void** state) {
  (void)state;
  static const struct {
    const char* section;
    int holds;
  } rows[] = {{"", 1}, {ZERO("2", ""), 1}, {ZERO("3", ALL_SHARDED), 0}, {ZERO("3", ""), 1}, {DP(""), 0}};
  float logits[2 * TOKENS * VOCAB];
  asked a = {TRAIN("6", ""), logits, 1};
  as_threads(1, ask, &a);
  for (size_t z = 0; z < sizeof rows / sizeof *rows; ++z)
    for (int n = 2; n <= 3; ++n) {
      char config[512];
      snprintf(config, sizeof config, "%s%s", rows[z].section, TRAIN("6", ""));
      a.config = config;
      a.holds = rows[z].holds;
      as_threads(n, ask, &a);
      as_threads(n, ask_and_fail_on_one, &a);
    }
}

/* ---- behind a step that failed ---- */

static gsel_status never_there(const gsel_data_request* r, void* user) {
  (void)r, (void)user;
  return GSEL_ERR_IO;
}

static void fail_and_infer(rank_run* run) {
  step_model m;
  step_session s;
  gsel_error* err = NULL;
  float y[STEP_WIDTH];
  memset(&m, 0, sizeof m);
  m.config = (const char*)run->user;
  m.data = never_there;
  rank_ok(run, step_open(run, &m, &s, &err), err);
  const gsel_status status = gsel_trainer_step(s.trainer, NULL, &err);
  rank_check(run, status == (run->rank ? GSEL_ERR_ABORTED : GSEL_ERR_CALLBACK));
  gsel_error_free(err);
  rank_fails(run, gsel_trainer_infer(s.trainer, STEP_Y, 1, step_data, NULL, y, sizeof y, &err), err, GSEL_ERR_STATE,
             "an earlier step failed", -1);
  step_close(&s);
}

static void inference_after_a_step_that_failed_is_refused_under_every_strategy(void** state) {
  (void)state;
  as_threads(1, fail_and_infer, STEP_SIGN("1", ""));
  as_threads(2, fail_and_infer, STEP_SIGN("2", "") "[mesh]\npipeline = 2\n[strategy.pipeline]\nplugin = \"pp\"\n");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(an_evaluation_changes_nothing_and_tells_the_loss_of_its_batch),
      cmocka_unit_test(noise_of_an_evaluation_is_that_of_the_next_step),
      cmocka_unit_test(an_evaluation_under_way_excludes_steps_and_the_other_way_round),
      cmocka_unit_test(a_pulled_evaluation_is_told_once_and_no_other_in_its_place),
      cmocka_unit_test(inference_gathers_what_a_rank_does_not_have),
      cmocka_unit_test(inference_after_a_step_that_failed_is_refused_under_every_strategy),
  };
  return cmocka_run_group_tests_name("step evaluation", tests, NULL, NULL);
}
