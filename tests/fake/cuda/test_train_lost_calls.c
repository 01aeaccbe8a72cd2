/* A device is lost, or a rank is killed, at calls of the driver or of NCCL throughout a step, an evaluation, an
 * inference and a read of a parameter (every n-th, see at_calls_of_all), on rank 1 under zero 3: the rank gets an error
 * that names the device, the other one gets one that says why, or the right result if it had all that it needed, and
 * nobody is left waiting. And who keeps all parameters reads them after another rank's death. */
#include "fake/cuda/on_device.h"
#include "support/trainer_trial.h"

enum { RANKS = 2, GONE = 999, KILLED = -SIGKILL, MOST_CALLS = 4000, LOGITS = 48 };
enum { UNKNOWN, PASSED, LOST };
enum { STEP, EVALUATE, INFER, READ, N_REQUESTS };
static const char* const kRequests[] = {"step", "evaluation", "inference", "read"};

typedef struct lost_call {
  const char* transport;
  int request, how, victim;
  int at;           /* the call of the victim's that finds the device gone, or its process killed; from 1 */
  int32_t* n_ready; /* ranks that have come to the request; shared */
  int32_t* outcome; /* of the victim's request; shared */
} lost_call;

typedef struct answer {
  double loss;
  float values[MOST_ELEMS]; /* of a parameter, or of an output */
} answer;

static gsel_status ask(const session* s, int request, answer* out, gsel_error** err) {
  gsel_step_report report = GSEL_STEP_REPORT_INIT;
  gsel_status status = GSEL_OK;
  if (request == STEP) status = gsel_trainer_step(s->trainer, NULL, err);
  if (request == EVALUATE) status = gsel_trainer_evaluate(s->trainer, 6, NULL, NULL, &report, err);
  if (request == INFER)
    status = gsel_trainer_infer(s->trainer, V_LOGITS, 2, exact_data, NULL, out->values, LOGITS * sizeof(float), err);
  if (request == READ)
    status = gsel_trainer_read_param(s->trainer, 1, out->values, sizeof(float) * (size_t)kExactElems[1], err);
  out->loss = request == EVALUATE ? report.loss : 0;
  return status;
}

/* The rank whose device is lost. */
static void expect_own_loss(rank_run* run, const lost_call* l, const session* s, gsel_status status, gsel_error* err) {
  __atomic_store_n(l->outcome, status ? LOST : PASSED, __ATOMIC_SEQ_CST);
  if (status == GSEL_OK) return;
  rank_fails(run, status, err, status, "on device 1: CUDA_ERROR_UNKNOWN (999)", -1);
  rank_check(run, status == GSEL_ERR_DEVICE || status == GSEL_ERR_STATE);
  err = NULL;
  const gsel_status again = gsel_trainer_step(s->trainer, NULL, &err);
  rank_check(run, again != GSEL_OK);
  gsel_error_free(err);
}

static void await_outcome(const lost_call* l) {
  while (__atomic_load_n(l->outcome, __ATOMIC_SEQ_CST) == UNKNOWN)
    nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
}

/* The other rank: what it got is right, or an error. After that no step ends. */
static void expect_loss_of_other(rank_run* run, const lost_call* l, const session* s, const answer* expected,
                                 const answer* got, gsel_status status, gsel_error* err) {
  if (status == GSEL_OK && l->request != STEP) rank_check(run, memcmp(got, expected, sizeof *got) == 0);
  await_outcome(l);
  if (*l->outcome == PASSED) return;
  for (int more = 0; more < 3 && status == GSEL_OK; ++more) status = gsel_trainer_step(s->trainer, NULL, &err);
  rank_fails(run, status, err, status, l->how == KILLED ? "rank 1 (pid " : "on device 1: CUDA_ERROR_UNKNOWN (999)",
             l->victim);
}

static void loses_a_rank_in_a_request(rank_run* run) {
  const lost_call* l = (const lost_call*)run->user;
  trial t = plain(ZERO("3", ALL_SHARDED) TRAIN("6", ""), NULL);
  static answer expected, got;
  gsel_error* err = NULL;
  session s;
  rank_run own = *run;
  own.user = &t;
  own.timeout_s = 20;
  on_transport = l->transport;
  rank_ok(run, open_session(&own, &s, &err), err);
  rank_ok(run, gsel_trainer_step(s.trainer, NULL, &err), err);
  if (l->request != STEP) rank_ok(run, ask(&s, l->request, &expected, &err), err);
  __atomic_add_fetch(l->n_ready, 1, __ATOMIC_SEQ_CST);
  await_step(l->n_ready, RANKS);
  if (run->rank == l->victim) CUDA("fake_cuda_lose", int, int)(l->at, l->how);
  const gsel_status status = ask(&s, l->request, &got, &err);
  if (run->rank == l->victim)
    expect_own_loss(run, l, &s, status, err);
  else
    expect_loss_of_other(run, l, &s, &expected, &got, status, err);
  /* Who has passed is not freed before the other has looked. */
  if (*l->outcome == PASSED) {
    __atomic_add_fetch(l->n_ready, 1, __ATOMIC_SEQ_CST);
    await_step(l->n_ready, 2 * RANKS);
  }
  close_session(&s);
}

static void at_a_call(lost_call* l) {
  rank_run* runs = ranks_prepare(RANKS, l);
  pid_t pids[RANKS];
  int status;
  *l->n_ready = *l->outcome = 0;
  for (int r = 0; r < RANKS; ++r) pids[r] = rank_fork(&runs[r], loses_a_rank_in_a_request);
  for (int r = RANKS - 1; r >= 0; --r) { /* the victim first */
    waitpid(pids[r], &status, 0);
    const int is_killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    if (is_killed && r == l->victim) __atomic_store_n(l->outcome, LOST, __ATOMIC_SEQ_CST);
    if (status != 0 && !(is_killed && l->how == KILLED && r == l->victim))
      fail_msg("rank %d ended with wait status 0x%x: %s", r, (unsigned)status, runs[r].failure);
  }
  ranks_verdict(runs, RANKS);
}

/* Every stride-th call, from the first to the last of the request. */
static void at_calls(const char* transport, int request, int how, int stride) {
  lost_call l = {.transport = transport, .request = request, .how = how, .victim = 1, .at = 1};
  l.n_ready = (int32_t*)shared_memory(2 * sizeof(int32_t));
  l.outcome = l.n_ready + 1;
  for (; l.at < MOST_CALLS && *l.outcome != PASSED; l.at += stride) at_a_call(&l);
  print_message("  %s over %s, %s: %d calls\n", kRequests[request], transport, how == KILLED ? "killed" : "gone", l.at);
  assert_true(*l.outcome == PASSED && l.at > 2 * stride);
  munmap(l.n_ready, 2 * sizeof(int32_t));
}

static void at_calls_of_all(int how, int stride_of_step, int stride) {
  static const char* const transports[] = {"nccl", "host", "cuda_ipc"};
  for (int i = 0; i < 3; ++i)
    for (int request = STEP; request < N_REQUESTS; ++request)
      at_calls(transports[i], request, how,
               request == STEP   ? stride_of_step
               : request == READ ? (stride + 6) / 7
                                 : stride);
}

/* With ddp each rank keeps all parameters, so that a read needs nobody. */
static void reads_what_it_keeps(rank_run* run) {
  trial t = plain("[strategy.data]\nplugin = \"ddp\"\n" TRAIN("6", ""), NULL);
  static float before[MOST_ELEMS], after[MOST_ELEMS];
  gsel_error* err = NULL;
  session s;
  rank_run own = *run;
  own.user = &t;
  own.timeout_s = 20;
  on_transport = "nccl";
  rank_ok(run, open_session(&own, &s, &err), err);
  rank_ok(run, gsel_trainer_step(s.trainer, NULL, &err), err);
  read_session_params(run, &s, before);
  if (run->rank == 1) raise(SIGKILL);
  rank_fails(run, gsel_trainer_step(s.trainer, NULL, &err), err, GSEL_ERR_PEER, "rank 1 (pid ", 1);
  rank_check(run, gsel_trainer_holds_params(s.trainer));
  read_session_params(run, &s, after);
  rank_check(run, memcmp(before, after, sizeof before) == 0);
  close_session(&s);
}

static void parameters_that_are_kept_are_read_after_a_death(void** state) {
  (void)state;
  rank_run* runs = ranks_prepare(RANKS, NULL);
  int status[RANKS];
  pid_t pids[RANKS];
  for (int r = 0; r < RANKS; ++r) pids[r] = rank_fork(&runs[r], reads_what_it_keeps);
  for (int r = 0; r < RANKS; ++r) waitpid(pids[r], &status[r], 0);
  assert_int_equal(status[0], 0);
  ranks_verdict(runs, RANKS);
}

static void a_device_is_lost_at_calls(void** state) {
  (void)state, at_calls_of_all(GONE, 11, 6);
}
static void a_rank_is_killed_at_calls(void** state) {
  (void)state, at_calls_of_all(KILLED, 29, 14);
}

int main(void) {
  /* The double counts what a process does, and no thread may have run here before ranks are forked. */
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_device_is_lost_at_calls),
      cmocka_unit_test(a_rank_is_killed_at_calls),
      cmocka_unit_test(parameters_that_are_kept_are_read_after_a_death),
  };
  return cmocka_run_group_tests_name("train_lost_calls", tests, NULL, NULL);
}
