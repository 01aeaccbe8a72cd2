/* What goes wrong while ranks train on devices: a callback that fails, a rank that dies, a device that fails for good,
 * no memory. Every rank gets an error that names the cause, nobody waits, and the process trains on the host all the
 * same. */
#include <math.h>

#include "fake/cuda/on_device.h"
#include "support/equality_model.h"
#include "support/step_model.h"
#include "support/trainer_trial.h"

static const char* const kKinds[] = {DP("bucket_bytes = 1\n"), DDP("first_bucket_bytes = 1\nbucket_bytes = 1\n"),
                                     ZERO("2", "bucket_bytes = 1\n"), ZERO("3", ALL_SHARDED),
                                     "[mesh]\npipeline = 3\n[strategy.pipeline]\nplugin = \"pp\"\n"};
enum { N_KINDS = sizeof kKinds / sizeof *kKinds, RANKS = 3 };

/* A rank that has the layer which fails. Of a pipeline that is the last. */
static int rank_for(int kind, int other) {
  return kind == N_KINDS - 1 ? RANKS - 1 : (kind + other) % RANKS;
}

static int trains_until_it_fails(session* s, int steps, gsel_error** err) {
  for (int i = 0; i < steps; ++i) {
    const gsel_status status = gsel_trainer_step(s->trainer, NULL, err);
    if (status) return status;
  }
  return GSEL_OK;
}

/* ---- a callback, a rank ---- */

static void expect_failure(rank_run* run) {
  const trial* t = (const trial*)run->user;
  session s;
  gsel_error* err = NULL;
  char text[128];
  rank_ok(run, open_session(run, &s, &err), err);
  const gsel_status status = trains_until_it_fails(&s, t->steps, &err);
  snprintf(text, sizeof text,
           "layer \"head\" failed in forward on rank %d, step 2, micro-batch 0: the numbers were not right",
           t->fail_on_rank);
  if (t->at_failure)
    rank_fails(run, status, err, GSEL_ERR_PEER, "ended without gsel_comm_free", t->fail_on_rank);
  else
    rank_fails(run, status, err, run->rank == t->fail_on_rank ? GSEL_ERR_CALLBACK : GSEL_ERR_ABORTED, text, -1);
  rank_fails(run, gsel_trainer_step(s.trainer, NULL, &err), err, GSEL_ERR_STATE, "an earlier step failed", -1);
  close_session(&s);
}

static trial failing(const char* section, char* config, size_t size, int rank) {
  snprintf(config, size, "%s" TRAIN("6", ""), section);
  trial t = plain(config, NULL);
  t.fail_at_step = 2;
  t.fail_on_rank = rank;
  return t;
}

static void a_callback_that_fails_ends_the_step_everywhere(void** state) {
  (void)state;
  char config[512];
  on_transport = "nccl";
  for (int k = 0; k < N_KINDS; ++k) {
    trial t = failing(kKinds[k], config, sizeof config, rank_for(k, 0));
    as_threads(RANKS, expect_failure, &t);
  }
  no_violations();
  on_transport = NULL;
}

static void die(void) {
  raise(SIGKILL);
}

static void as_processes_but(int victim, rank_body body, void* user) {
  rank_run* runs = ranks_prepare(RANKS, user);
  pid_t pids[RANKS];
  for (int r = 0; r < RANKS; ++r) pids[r] = rank_fork(&runs[r], body);
  for (int r = 0; r < RANKS; ++r) {
    int status = 0;
    waitpid(pids[r], &status, 0);
    assert_true(r == victim ? WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL : status == 0);
  }
  ranks_verdict(runs, RANKS);
}

static void a_rank_killed_in_a_step_is_an_error_that_names_it(void** state) {
  (void)state;
  char config[512];
  on_transport = "nccl";
  for (int k = 0; k < N_KINDS; ++k) {
    const int victim = rank_for(k, 1);
    trial t = failing(kKinds[k], config, sizeof config, victim);
    t.at_failure = die;
    as_processes_but(victim, expect_failure, &t);
  }
  on_transport = NULL;
}

/* Late enough for the others to enqueue their step to its end. */
static void die_late(void) {
  nanosleep(&(struct timespec){.tv_nsec = 500000000}, NULL);
  die();
}

/* What the others had enqueued has updated nothing. */
static void goes_on_without_the_victim(rank_run* run) {
  const trial* t = (const trial*)run->user;
  session s;
  gsel_error* err = NULL;
  gsel_comm* smaller = NULL;
  gsel_rebind_report report = GSEL_REBIND_REPORT_INIT;
  rank_ok(run, open_session(run, &s, &err), err);
  rank_fails(run, trains_until_it_fails(&s, t->steps, &err), err, GSEL_ERR_PEER, "ended without gsel_comm_free",
             t->fail_on_rank);
  err = NULL;
  rank_ok(run, gsel_comm_shrink(s.comm, &smaller, &err), err);
  rank_ok(run, gsel_trainer_rebind(s.trainer, smaller, NULL, &report, &err), err);
  rank_check(run, report.step == t->fail_at_step && report.lost_steps == 0);
  gsel_comm_free(s.comm);
  s.comm = smaller;
  rank_ok(run, gsel_trainer_step(s.trainer, NULL, &err), err);
  close_session(&s);
}

static void a_rank_killed_in_a_step_leaves_whole_state(void** state) {
  (void)state;
  char config[512];
  on_transport = "nccl";
  for (int k = 0; k < 2; ++k) {
    const int victim = rank_for(k, 1);
    trial t = failing(kKinds[k], config, sizeof config, victim);
    t.at_failure = die_late;
    as_processes_but(victim, goes_on_without_the_victim, &t);
  }
  on_transport = NULL;
}

/* ---- a device ---- */

static void trains_on_the_host(rank_run* run) {
  static const char config[] = DDP("") TRAIN("6", "");
  trial t = plain(config, (outcome*)run->user);
  rank_run own = *run;
  own.user = &t;
  train(&own);
  memcpy(run->failure, own.failure, sizeof run->failure);
}

/* Rank 1's device fails for good in some kernel of a step. */
static void loses_its_device(rank_run* run) {
  static const char config[] = DDP("first_bucket_bytes = 1\nbucket_bytes = 1\n") TRAIN("6", "");
  trial t = plain(config, NULL);
  session s;
  gsel_error* err = NULL;
  rank_run own = *run;
  own.user = &t;
  if (run->rank == 1) setenv("GSEL_FAKE_CUDA_STICKY", "9", 1);
  rank_ok(run, open_session(&own, &s, &err), err);
  const gsel_status status = trains_until_it_fails(&s, 40, &err);
  /* Others hear it from the trainer, or from rank 1's communicator, whose thread may meet it first or later. */
  const int is_own = status == GSEL_ERR_DEVICE || status == GSEL_ERR_STATE;
  const gsel_status expected = is_own ? status : run->rank == 1 ? GSEL_ERR_DEVICE : GSEL_ERR_ABORTED;
  rank_fails(run, status, err, expected, "only a new process can use the device", run->rank == 1 ? -1 : 1);
  close_session(&s);
  /* The process whose device is gone trains on the host. */
  on_transport = NULL;
  rank_ok(run, open_session(&own, &s, &err), err);
  for (int i = 0; i < STEPS; ++i) rank_ok(run, gsel_trainer_step(s.trainer, NULL, &err), err);
  close_session(&s);
}

static void a_device_that_fails_for_good_is_told_to_all(void** state) {
  (void)state;
  on_transport = "nccl";
  as_processes(RANKS, loses_its_device, NULL);
  on_transport = NULL;
}

/* Rank 1 finds no memory for its trainer. */
static void has_no_memory(rank_run* run) {
  static const char config[] = DDP("") TRAIN("6", "");
  trial t = plain(config, NULL);
  session s;
  gsel_error* err = NULL;
  rank_run own = *run;
  own.user = &t;
  on_transport = "nccl";
  if (run->rank == 1) setenv("GSEL_FAKE_CUDA_OOM", "9", 1);
  const gsel_status status = open_session(&own, &s, &err);
  char text[2048] = "";
  gsel_error_format(err, text, sizeof text);
  print_message("rank %d: %s\n", (int)run->rank, text);
  if (run->rank == 1) {
    rank_check(run, strstr(text, "device memory") && strstr(text, "The trainer has\n  "));
    rank_check(run, strstr(text, "total without offload memory") && strstr(text, "\nFree on the device are "));
  }
  rank_fails(run, status, err, run->rank == 1 ? GSEL_ERR_NOMEM : GSEL_ERR_PEER, run->rank == 1 ? "" : "rank 1", -1);
  close_session(&s);
  on_transport = NULL;
}

/* Before anything is allocated. */
static void finds_that_it_does_not_fit(rank_run* run) {
  static const char config[] = ZERO("1", "") TRAIN("80000000", "");
  trial t = plain(config, NULL);
  session s;
  gsel_error* err = NULL;
  rank_run own = *run;
  own.user = &t;
  const gsel_status status = open_session(&own, &s, &err);
  char text[2048] = "";
  gsel_error_format(err, text, sizeof text);
  if (run->rank == 0) print_message("%s\n", text);
  rank_check(run, strstr(text, "the accelerator of rank 0 has ") != NULL);
  rank_check(run, strstr(text, "values and windows") != NULL);
  rank_check(run, strstr(text, "; in gsel.toml: [train] microbatch = ") != NULL);
  rank_fails(run, status, err, GSEL_ERR_NOMEM, "free, which is not enough: rank 0 of 3 needs ", -1);
  close_session(&s);
}

static void a_model_that_does_not_fit_is_refused_with_what_would(void** state) {
  (void)state;
  on_transport = "nccl";
  as_threads(RANKS, finds_that_it_does_not_fit, NULL);
  no_violations();
  on_transport = NULL;
}

static void without_memory_no_rank_has_a_trainer(void** state) {
  (void)state;
  as_processes(RANKS, has_no_memory, NULL);
}

/* ---- a number that is not finite, in the second micro-batch of step 1 ---- */

typedef struct bad_number {
  step_model m;
  int rank, in_loss;
} bad_number;

static int is_bad(const gsel_call* c, const step_model* m, int in_loss) {
  const bad_number* bad = (const bad_number*)m->user;
  return c->step == 1 && c->microbatch == 1 && m->rank == bad->rank && bad->in_loss == in_loss;
}
static gsel_status backward_with_nan(const gsel_call* c, void* user) {
  const gsel_status status = step_backward(c, user);
  if (is_bad(c, (const step_model*)user, 0)) ((float*)c->d_params[STEP_B].data)[2] = NAN;
  return status;
}
static gsel_status loss_with_infinity(const gsel_call* c, void* user) {
  const gsel_status status = step_loss_forward(c, user);
  if (is_bad(c, (const step_model*)user, 1)) *(double*)c->outputs[0].data = INFINITY;
  return status;
}
static gsel_status loss_backward_with_nan(const gsel_call* c, void* user) {
  const gsel_status status = step_loss_backward(c, user);
  if (is_bad(c, (const step_model*)user, 1)) ((float*)c->d_inputs[0].data)[0] = NAN;
  return status;
}

/* The device has found it; the host reads it at the end of the step. */
static void skips_the_step(rank_run* run) {
  const bad_number* bad = (const bad_number*)run->user;
  step_model m = bad->m;
  step_session s;
  gsel_error* err = NULL;
  m.backward = backward_with_nan;
  m.loss_forward = loss_with_infinity;
  m.loss_backward = loss_backward_with_nan;
  m.user = (void*)(uintptr_t)bad;
  rank_ok(run, step_open(run, &m, &s, &err), err);
  for (int i = 0; i < 3; ++i) {
    gsel_step_report report = GSEL_STEP_REPORT_INIT;
    float params[STEP_PARAMS * STEP_WIDTH];
    rank_ok(run, gsel_trainer_step(s.trainer, NULL, &err), err);
    rank_ok(run, step_params(s.trainer, params, &err), err); /* settles an optimistic step */
    rank_ok(run, gsel_trainer_report(s.trainer, &report, &err), err);
    rank_check(run, report.skipped == (i == 1));
    rank_check(run, report.non_finite_rank == (i == 1 ? bad->rank : -1));
    rank_check(run, report.non_finite_microbatch == (i == 1 ? 1 : -1));
    rank_check(run, report.non_finite_param == (i == 1 && !bad->in_loss ? STEP_B : -1));
    rank_check(run, report.non_finite_value == (i == 1 && bad->in_loss ? STEP_LOSS : -1));
  }
  step_close(&s);
}

static void a_number_that_is_not_finite_is_found(void** state) {
  (void)state;
  char config[640];
  on_transport = "nccl";
  for (int in_loss = 0; in_loss < 2; ++in_loss)
    for (size_t z = STEP_DP + 1; z < N_STEP_EACH_STRATEGY; ++z) {
      snprintf(config, sizeof config,
               "%s[train]\nbatch = 8\nmicrobatches = 2\nweight_decay = 0.0\noptimizer = \"sgd\"\n"
               "learning_rate = 0.00390625\nnon_finite = \"skip\"\n",
               kStepEachStrategy[z]);
      /* In a pipeline the first rank has the layer, the second the loss. */
      bad_number bad = {.rank = z >= STEP_FIRST_PIPELINE ? in_loss : 1, .in_loss = in_loss};
      bad.m.config = config;
      print_message("  %s", kStepEachStrategy[z]);
      as_threads(2, skips_the_step, &bad);
      no_violations();
    }
  on_transport = NULL;
}

static void the_host_still_trains(void** state) {
  (void)state;
  outcome* out = shared_outcomes();
  as_threads(RANKS, trains_on_the_host, out);
  free_outcomes(out);
}

int main(void) {
  /* The double counts what a process does: the first two begin before it has done anything. No thread may have run here
   * before ranks are forked. */
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_device_that_fails_for_good_is_told_to_all),
      cmocka_unit_test(without_memory_no_rank_has_a_trainer),
      cmocka_unit_test(a_rank_killed_in_a_step_is_an_error_that_names_it),
      cmocka_unit_test(a_rank_killed_in_a_step_leaves_whole_state),
      cmocka_unit_test(a_callback_that_fails_ends_the_step_everywhere),
      cmocka_unit_test(a_model_that_does_not_fit_is_refused_with_what_would),
      cmocka_unit_test(a_number_that_is_not_finite_is_found),
      cmocka_unit_test(the_host_still_trains),
  };
  return cmocka_run_group_tests_name("train_faults", tests, NULL, NULL);
}
