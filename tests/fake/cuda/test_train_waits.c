/* Waits for a device have a bound. A rank that is killed or stopped in the middle of a step ends the work that waits
 * for it, also where no thread watches the communicator, and what aborted calls write updates nothing. A device on
 * which a kernel does not end is an error after the timeout; its memory stays, its trainer and its communicator are
 * freed, and the process goes on on the host. */
#include "fake/cuda/on_device.h"
#include "support/trainer_trial.h"

static const char* const kKinds[] = {DDP("first_bucket_bytes = 1\nbucket_bytes = 1\n"), ZERO("3", ALL_SHARDED),
                                     "[mesh]\npipeline = 3\n[strategy.pipeline]\nplugin = \"pp\"\n"};
enum { N_KINDS = sizeof kKinds / sizeof *kKinds, RANKS = 3 };

/* A rank that has the layer where it stops. Of a pipeline that is the last. */
static int rank_for(int kind) {
  return kind == N_KINDS - 1 ? RANKS - 1 : 1;
}

static gsel_status trains_until_it_fails(session* s, int steps, gsel_error** err) {
  for (int i = 0; i < steps; ++i) {
    const gsel_status status = gsel_trainer_step(s->trainer, NULL, err);
    if (status) return status;
  }
  return GSEL_OK;
}

static void trains_on_the_host(rank_run* run, session* s) {
  gsel_error* err = NULL;
  on_transport = NULL;
  on_card = -1;
  rank_ok(run, open_session(run, s, &err), err);
  for (int i = 0; i < STEPS; ++i) rank_ok(run, gsel_trainer_step(s->trainer, NULL, &err), err);
  close_session(s);
}

/* ---- ranks that are killed or stopped ---- */

static void die(void) {
  raise(SIGKILL);
}
/* Late enough for the others to wait for their devices. */
static void stop(void) {
  nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL);
  raise(SIGSTOP);
}

static void expect_error(rank_run* run) {
  const trial* t = (const trial*)run->user;
  session s;
  gsel_error* err = NULL;
  char text[512] = "";
  run->timeout_s = 2;
  rank_ok(run, open_session(run, &s, &err), err);
  const gsel_status status = trains_until_it_fails(&s, t->steps, &err);
  if (t->at_failure == die) {
    rank_fails(run, status, err, GSEL_ERR_PEER, "ended without gsel_comm_free", t->fail_on_rank);
  } else {
    gsel_error_format(err, text, sizeof text);
    gsel_error_free(err);
    print_message("    rank %d: %s\n", run->rank, text);
    rank_check(run, status == GSEL_ERR_TIMEOUT || status == GSEL_ERR_ABORTED);
    rank_check(run, strstr(text, "timed out") != NULL || strstr(text, "waited") != NULL);
  }
  err = NULL;
  rank_fails(run, gsel_trainer_step(s.trainer, NULL, &err), err, GSEL_ERR_STATE, "an earlier step failed", -1);
  close_session(&s);
}

/* The stopped rank is killed once the others have ended. */
static void as_processes_but(int victim, trial* t) {
  rank_run* runs = ranks_prepare(RANKS, t);
  pid_t pids[RANKS];
  int status;
  for (int r = 0; r < RANKS; ++r) pids[r] = rank_fork(&runs[r], expect_error);
  for (int r = 0; r < RANKS; ++r) {
    if (r == victim) continue;
    waitpid(pids[r], &status, 0);
    assert_int_equal(status, 0);
  }
  kill(pids[victim], SIGKILL);
  waitpid(pids[victim], &status, 0);
  assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  ranks_verdict(runs, RANKS);
}

static void lose_a_rank(void (*how)(void), uint32_t flags, int kinds) {
  char config[512];
  on_transport = "nccl";
  on_flags = flags;
  for (int k = 0; k < kinds; ++k) {
    print_message("  %s", kKinds[k]);
    snprintf(config, sizeof config, "%s" TRAIN("6", ""), kKinds[k]);
    trial t = plain(config, NULL);
    t.fail_at_step = 2;
    t.fail_on_rank = rank_for(k);
    t.at_failure = how;
    as_processes_but(rank_for(k), &t);
  }
  on_flags = 0;
  on_transport = NULL;
}

static void a_rank_that_is_killed(void** state) {
  (void)state, lose_a_rank(die, 0, N_KINDS);
}
/* Callbacks of the others wait for memory alone that no other rank writes: nobody would end a wait of theirs. */
static void a_rank_that_is_killed_where_no_thread_watches(void** state) {
  (void)state, lose_a_rank(die, GSEL_COMM_NO_THREAD, 1);
}
static void a_rank_that_is_stopped(void** state) {
  (void)state, lose_a_rank(stop, 0, N_KINDS);
}

/* ---- devices that do not go on ---- */

#define HANGS "gsel_scale_of_update:2" /* in the step after the first */

/* The others wait longer, so that this rank is the first to know. */
static void has_a_device_that_hangs(rank_run* run) {
  trial t = plain((const char*)run->user, NULL);
  session s;
  gsel_error* err = NULL;
  char text[1024] = "";
  rank_run own = *run;
  own.user = &t;
  own.timeout_s = run->rank == 1 ? 1 : 40;
  if (run->rank == 1) setenv("GSEL_FAKE_CUDA_HANGS", HANGS, 1);
  rank_ok(run, open_session(&own, &s, &err), err);
  const gsel_status status = trains_until_it_fails(&s, 40, &err);
  gsel_error_format(err, text, sizeof text);
  rank_check(run,
             strstr(text, "rank 1 waited ") && strstr(text, " for the end of step 1 on cuda:1, which has not gone on"));
  rank_check(run, run->rank != 1 || strstr(text, "; after that cuda:1 of rank 1 did not answer within "));
  rank_fails(run, status, err, status, "", 1);
  rank_check(run, run->rank == 1 ? status == GSEL_ERR_TIMEOUT : status != GSEL_OK);
  close_session(&s);
  own.timeout_s = 20;
  trains_on_the_host(&own, &s);
  memcpy(run->failure, own.failure, sizeof run->failure);
}

/* With zero 1 the parameters are gathered behind the update that hangs. */
static void a_device_that_hangs_is_an_error_after_the_timeout(void** state) {
  static char ddp[] = DDP("first_bucket_bytes = 1\nbucket_bytes = 1\n") TRAIN("6", ""),
              zero[] = ZERO("1", ALL_SHARDED) TRAIN("6", "");
  (void)state;
  on_transport = "nccl";
  as_processes(2, has_a_device_that_hangs, ddp);
  on_transport = "host";
  as_processes(2, has_a_device_that_hangs, ddp);
  as_processes(2, has_a_device_that_hangs, zero);
  on_transport = NULL;
}

/* No rank comes to the call through memory of the host, so that none is late. */
static void all_hang_before_a_call(rank_run* run) {
  trial t = plain(ZERO("1", ALL_SHARDED) TRAIN("6", ""), NULL);
  session s;
  gsel_error* err = NULL;
  char text[1024] = "";
  rank_run own = *run;
  own.user = &t;
  own.timeout_s = 1;
  setenv("GSEL_FAKE_CUDA_HANGS", HANGS, 1);
  rank_ok(run, open_session(&own, &s, &err), err);
  const gsel_status status = trains_until_it_fails(&s, 40, &err);
  gsel_error_format(err, text, sizeof text);
  gsel_error_free(err);
  print_message("    rank %d: %s\n", run->rank, text);
  rank_check(run, status == GSEL_ERR_TIMEOUT || status == GSEL_ERR_ABORTED);
  rank_check(run, strstr(text, " for the end of step 1 on cuda:") && strstr(text, ", which has not gone on for "));
  close_session(&s);
  trains_on_the_host(&own, &s);
  memcpy(run->failure, own.failure, sizeof run->failure);
}

static void devices_that_hang_before_a_call_through_host_memory(void** state) {
  (void)state;
  on_transport = "host";
  as_processes(2, all_hang_before_a_call, NULL);
  on_transport = NULL;
}

static int live_allocations(void) {
  return CUDA("fake_cuda_live", void)();
}

/* Without a communicator. ends: the kernel ends after all, before the trainer is freed. */
static void is_alone(rank_run* run) {
  static const char config[] = "[comm]\ntimeout_s = 0.5\n" DP("") TRAIN("6", "device = \"cuda:0\"\n");
  const int ends = *(const int*)run->user;
  trial t = plain(config, NULL);
  session s;
  gsel_error* err = NULL;
  rank_run own = *run;
  own.user = &t;
  t.without_comm = 1;
  on_card = 0;
  load_doubles("fake_libnccl.so");
  const int before = live_allocations();
  setenv("GSEL_FAKE_CUDA_HANGS", HANGS, 1);
  rank_ok(run, open_session(&own, &s, &err), err);
  rank_fails(run, trains_until_it_fails(&s, 40, &err), err, GSEL_ERR_TIMEOUT, "for the end of step 1 on cuda:0", 0);
  if (ends) CUDA("fake_cuda_release", void)();
  close_session(&s);
  rank_check(run, ends ? live_allocations() == before : live_allocations() > before);
  rank_check(run, cuda.violations() == 0);
  if (ends) {
    rank_ok(run, open_session(&own, &s, &err), err);
    rank_ok(run, trains_until_it_fails(&s, 4, &err), err);
    close_session(&s);
    rank_check(run, cuda.violations() == 0);
  }
  t = plain(DP("") TRAIN("6", ""), NULL);
  trains_on_the_host(&own, &s);
  memcpy(run->failure, own.failure, sizeof run->failure);
}

static void memory_of_a_device_that_hangs_stays(void** state) {
  (void)state;
  int ends = 0;
  as_processes(1, is_alone, &ends);
}
static void memory_is_freed_once_the_device_has_answered(void** state) {
  (void)state;
  int ends = 1;
  as_processes(1, is_alone, &ends);
}

int main(void) {
  /* The double counts what a process does, and no thread may have run here before ranks are forked. */
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_rank_that_is_killed),
      cmocka_unit_test(a_rank_that_is_killed_where_no_thread_watches),
      cmocka_unit_test(a_rank_that_is_stopped),
      cmocka_unit_test(a_device_that_hangs_is_an_error_after_the_timeout),
      cmocka_unit_test(devices_that_hang_before_a_call_through_host_memory),
      cmocka_unit_test(memory_of_a_device_that_hangs_stays),
      cmocka_unit_test(memory_is_freed_once_the_device_has_answered),
  };
  return cmocka_run_group_tests_name("train_waits", tests, NULL, NULL);
}
