/* How a step ends when it cannot go on: on every rank, in bounded time, with an error that names the cause; and what is
 * refused before the first. */
#include "support/trainer_trial.h"

/* One of each kind of communication. */
static const char* const kKinds[] = {DP("bucket_bytes = 1\n"),        DDP("first_bucket_bytes = 1\nbucket_bytes = 1\n"),
                                     ZERO("1", "bucket_bytes = 1\n"), ZERO("2", "bucket_bytes = 1\n"),
                                     ZERO("3", ALL_SHARDED),          ZERO("3", ALL_SHARDED "prefetch_elems = 0\n")};
enum { N_KINDS = sizeof kKinds / sizeof *kKinds };

/* ---- a step that breaks ---- */

static void expect_failure(rank_run* run) {
  const trial* t = (const trial*)run->user;
  session s;
  gsel_error* err = NULL;
  char text[128];
  rank_ok(run, open_session(run, &s, &err), err);
  gsel_status status = GSEL_OK;
  for (int i = 0; i < t->steps && !status; ++i) status = gsel_trainer_step(s.trainer, NULL, &err);
  const int mine = run->rank == t->fail_on_rank;
  snprintf(text, sizeof text,
           "layer \"head\" failed in forward on rank %d, step 2, micro-batch 0: the numbers were not right",
           t->fail_on_rank);
  if (t->at_failure)
    rank_fails(run, status, err, GSEL_ERR_PEER, "ended without gsel_comm_free", t->fail_on_rank);
  else
    rank_fails(run, status, err, mine ? GSEL_ERR_CALLBACK : GSEL_ERR_ABORTED, text, -1);
  rank_fails(run, gsel_trainer_step(s.trainer, NULL, &err), err, GSEL_ERR_STATE, "an earlier step failed", -1);
  close_session(&s);
}

static trial failing(const char* config, int rank) {
  trial t = plain(config, NULL);
  t.fail_at_step = 2;
  t.fail_on_rank = rank;
  return t;
}

static void a_failing_callback_ends_the_step_everywhere_with_its_reason(void** state) {
  (void)state;
  char config[512];
  for (int k = 0; k < N_KINDS; ++k) {
    snprintf(config, sizeof config, "%s" TRAIN("6", ""), kKinds[k]);
    trial t = failing(config, k % 3);
    as_threads(3, expect_failure, &t);
    as_processes(3, expect_failure, &t);
  }
}

static void die(void) {
  raise(SIGKILL);
}

static void a_rank_killed_in_a_step_is_an_error_that_names_it(void** state) {
  (void)state;
  char config[512];
  for (int k = 0; k < N_KINDS; ++k) {
    snprintf(config, sizeof config, "%s" TRAIN("6", ""), kKinds[k]);
    const int victim = (k + 1) % 3;
    trial t = failing(config, victim);
    t.at_failure = die;
    rank_run* runs = ranks_prepare(3, &t);
    pid_t pids[3];
    for (int r = 0; r < 3; ++r) pids[r] = rank_fork(&runs[r], expect_failure);
    for (int r = 0; r < 3; ++r) {
      int status = 0;
      waitpid(pids[r], &status, 0);
      assert_true(r == victim ? WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL : status == 0);
    }
    ranks_verdict(runs, 3);
  }
}

/* The gradient of the step's last sample is infinite, on whichever rank has it: nobody's parameters change, all ranks
 * say so, the scale falls, and the next step is as on one rank. */
static void an_overflow_on_one_rank_is_a_step_that_all_ranks_skip(void** state) {
  (void)state;
  static const char section[] = TRAIN("6", "precision = \"fp16\"\nloss_scale_hysteresis = 1\n");
  trial like = plain(NULL, NULL);
  like.overflow_at_step = 2;
  like.batch = 6;
  outcome *expected = shared_outcomes(), *out = shared_outcomes();
  trial t = like;
  t.config = section;
  t.out = expected;
  as_threads(1, train, &t);
  const int32_t skipped[STEPS] = {0, 0, 1, 0};
  assert_memory_equal(expected->skipped, skipped, sizeof skipped);
  assert_true(expected->report.loss_scale == 32768);
  for (int s = 0; s < N_STRATEGIES; ++s)
    for (int n = 2; n <= 3 && is_tried(s); ++n) {
      char config[512];
      snprintf(config, sizeof config, "%s%s", kStrategies[s].section, section);
      print_message("  %s on %d ranks\n", kStrategies[s].name, n);
      t = like;
      t.config = config;
      t.out = out;
      t.expected = expected;
      as_threads(n, train, &t);
      for (int r = 0; r < n; ++r) assert_true(out[r].report.loss_scale == 32768);
    }
  free_outcomes(expected);
  free_outcomes(out);
}

/* The same samples in every step. */
static gsel_status same_data(const gsel_data_request* r, void* user) {
  gsel_data_request same = *r;
  int64_t ids[16];
  if (r->n_samples > 16) return GSEL_ERR_INTERNAL;
  for (int64_t s = 0; s < r->n_samples; ++s) ids[s] = r->sample_ids[s] % 6;
  same.sample_ids = ids;
  return exact_data(&same, user);
}

/* Low-rank compression keeps what a step left out for the next: not that of a step that was skipped. */
static void a_skipped_step_changes_nothing_that_compression_keeps(void** state) {
  (void)state;
  static const char config[] =
      DDP("bucket_bytes = 1\nfirst_bucket_bytes = 1\ncompress = \"low_rank\"\ncompress_rank = 1\ncompress_start = 0\n")
          SGD("0.125", "6", "precision = \"fp16\"\nloss_scale = 64.0\n");
  outcome *expected = shared_outcomes(), *out = shared_outcomes();
  trial t = plain(config, expected);
  t.random = 1;
  t.data = same_data;
  t.batch = 6;
  t.steps = STEPS - 1;
  for (int n = 2; n <= 3; ++n) {
    trial with = t;
    with.out = out;
    with.overflow_at_step = 1;
    with.steps = STEPS;
    as_threads(n, train, &t);
    as_threads(n, train, &with);
    assert_int_equal(out->skipped[1], 1);
    assert_memory_equal(out->params, expected->params, sizeof out->params);
  }
  free_outcomes(expected);
  free_outcomes(out);
}

/* ---- what cannot begin ---- */

/* In a child of fork every call answers at once, and releasing does not wait for threads of the parent. */
static void fork_and_call(rank_run* run) {
  session s;
  gsel_error* err = NULL;
  rank_ok(run, open_session(run, &s, &err), err);
  rank_ok(run, gsel_trainer_step(s.trainer, NULL, &err), err);
  const pid_t child = fork();
  if (child == 0) {
    gsel_work work = GSEL_WORK_INIT;
    float logits[TOKENS * VOCAB];
    alarm(20);
    int good = gsel_trainer_step(s.trainer, NULL, NULL) == GSEL_ERR_FORKED;
    good &= gsel_trainer_next_work(s.trainer, &work, NULL) == GSEL_ERR_FORKED;
    good &=
        gsel_trainer_infer(s.trainer, V_LOGITS, 1, exact_data, NULL, logits, sizeof logits, NULL) == GSEL_ERR_FORKED;
    close_session(&s);
    _exit(good ? 0 : 1);
  }
  int status = -1;
  rank_check(run, child > 0 && waitpid(child, &status, 0) == child && status == 0);
  rank_ok(run, gsel_trainer_step(s.trainer, NULL, &err), err); /* the parent goes on */
  close_session(&s);
}

static void a_forked_child_is_refused_and_does_not_hang(void** state) {
  (void)state;
  trial t = plain(TRAIN("6", ""), NULL);
  as_processes(2, fork_and_call, &t);
}

static void refuse_to_open(rank_run* run, const char* part) {
  session s;
  gsel_error* err = NULL;
  rank_fails(run, open_session(run, &s, &err), err, GSEL_ERR_MISMATCH, part, -1);
  rank_ok(run, gsel_barrier(s.comm, &err), err); /* the communicator is still good */
  close_session(&s);
}
static void refuse_param(rank_run* run) {
  refuse_to_open(run, "parameter \"b1\" differs between rank 0 and rank 1");
}
static void refuse_setting(rank_run* run) {
  refuse_to_open(run, "setting train.batch differs between rank 0 and rank 1");
}

static void ranks_that_disagree_on_the_model_or_the_settings_are_refused(void** state) {
  (void)state;
  trial t = plain(TRAIN("6", ""), NULL);
  t.wide_on_rank = 1;
  as_threads(3, refuse_param, &t);
  t.wide_on_rank = -1;
  t.other_config_on_1 = TRAIN("8", "");
  as_threads(3, refuse_setting, &t);
}

static void refuse_alone(rank_run* run) {
  session s;
  gsel_error* err = NULL;
  const int mine = run->rank == 1;
  rank_fails(run, open_session(run, &s, &err), err, mine ? GSEL_ERR_NOT_FOUND : GSEL_ERR_PEER,
             mine ? "strategy \"nonesuch\" for the data axis could not be loaded" : "rank 1 could not make its trainer",
             -1);
  close_session(&s);
}

static void a_rank_that_cannot_start_is_reported_to_all(void** state) {
  (void)state;
  trial t = plain(TRAIN("6", ""), NULL);
  t.other_config_on_1 = "[strategy.data]\nplugin = \"nonesuch\"\n" TRAIN("6", "");
  as_threads(2, refuse_alone, &t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_failing_callback_ends_the_step_everywhere_with_its_reason),
      cmocka_unit_test(a_rank_killed_in_a_step_is_an_error_that_names_it),
      cmocka_unit_test(an_overflow_on_one_rank_is_a_step_that_all_ranks_skip),
      cmocka_unit_test(a_skipped_step_changes_nothing_that_compression_keeps),
      cmocka_unit_test(a_forked_child_is_refused_and_does_not_hang),
      cmocka_unit_test(ranks_that_disagree_on_the_model_or_the_settings_are_refused),
      cmocka_unit_test(a_rank_that_cannot_start_is_reported_to_all),
  };
  return cmocka_run_group_tests_name("strategies_faults", tests, NULL, NULL);
}
