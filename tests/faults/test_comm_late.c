/* faults/test_comm_late.c: a rank is stopped in the middle of a call, the others give up and use their buffers for
 * something else, and the rank goes on. It must not return what it then finds there as its result, and it must not
 * write to what is no longer its business. */
#include <poll.h>

#include "support/ranks.h"

enum { kCount = 1 << 18, kFirst = 1, kLater = 99 };

struct stage {
  gsel_collective_kind kind;
  int shared;           /* buffers of gsel_mem_alloc */
  gsel_status code;     /* what the survivors get */
  int32_t about;        /* rank */
  volatile int gave_up; /* rank 0 has its error, and has changed its buffers */
  volatile int ended;   /* rank 1 has ended */
};

static struct stage* make_stage(struct stage of) {
  struct stage* s = shared_memory(sizeof *s);
  *s = of;
  return s;
}

static void wait_for(const volatile int* flag) {
  for (int turn = 0; !*flag && turn < 60000; ++turn) poll(NULL, 0, 1);
}

static float* buffer(gsel_comm* comm, int shared, size_t count) {
  void* memory = NULL;
  if (!shared) return malloc(count * sizeof(float));
  return gsel_mem_alloc(comm, count * sizeof(float), &memory, NULL) == GSEL_OK ? memory : NULL;
}

static void fill(float* x, size_t count, float value) {
  for (size_t i = 0; i < count; ++i) x[i] = value;
}

static size_t first_other(const float* x, size_t count, float value) {
  for (size_t i = 0; i < count; ++i)
    if (x[i] != value) return i;
  return count;
}

/* Starts the ranks with GSEL_FAULT, waits until rank 1 has stopped and rank 0 has given up, lets rank 1 go on. */
static void run_stopped(int32_t n, struct stage* s, const char* fault, rank_body body) {
  rank_run* runs = ranks_prepare(n, s);
  pid_t pids[RANKS_MAX];
  if (fault) setenv("GSEL_FAULT", fault, 1);
  for (int32_t r = 0; r < n; ++r) {
    runs[r].timeout_s = s->code == GSEL_ERR_TIMEOUT ? 0.3 : 60;
    pids[r] = rank_fork(&runs[r], body);
  }
  unsetenv("GSEL_FAULT");
  int status = 0;
  waitpid(pids[1], &status, WUNTRACED);
  const int stopped = WIFSTOPPED(status);
  wait_for(&s->gave_up);
  kill(pids[1], SIGCONT);
  if (stopped) waitpid(pids[1], NULL, 0);
  s->ended = 1;
  for (int32_t r = 0; r < n; ++r)
    if (r != 1) waitpid(pids[r], NULL, 0);
  ranks_verdict(runs, n);
  assert_true(stopped);
  munmap(s, sizeof *s);
}

static size_t counts_of(gsel_collective_kind kind, int32_t n, int is_send) {
  if (kind == GSEL_COLLECTIVE_ALLGATHER) return is_send ? kCount : (size_t)n * kCount;
  if (kind == GSEL_COLLECTIVE_REDUCE_SCATTER || kind == GSEL_COLLECTIVE_ALLTOALL)
    return is_send || kind == GSEL_COLLECTIVE_ALLTOALL ? (size_t)n * kCount : kCount;
  return kCount;
}

/* What each element of recv is where every send is kFirst. */
static float result_of(gsel_collective_kind kind, int32_t n) {
  const int reduces = kind == GSEL_COLLECTIVE_ALLREDUCE || kind == GSEL_COLLECTIVE_REDUCE_SCATTER;
  return (float)(reduces ? kFirst * n : kFirst);
}

static void calls_and_changes_its_buffer(rank_run* run) {
  struct stage* s = run->user;
  gsel_error* err;
  gsel_comm* comm;
  rank_ok(run, rank_join(run, &comm, &err), err);
  const size_t n_send = counts_of(s->kind, run->world_size, 1), n_recv = counts_of(s->kind, run->world_size, 0);
  float *send = buffer(comm, s->shared, n_send), *recv = buffer(comm, s->shared, n_recv);
  rank_check(run, send && recv);
  fill(send, n_send, kFirst);
  fill(recv, n_recv, 0);
  rank_ok(run, gsel_barrier(comm, &err), err);
  gsel_collective call = GSEL_COLLECTIVE_INIT;
  call.kind = s->kind;
  call.dtype = GSEL_F32;
  call.op = GSEL_SUM;
  call.count = kCount;
  call.send = send;
  call.recv = recv;
  const gsel_status status = gsel_comm_run(comm, &call, &err);
  if (run->rank == 1) {
    if (status == GSEL_OK)
      rank_check(run, first_other(recv, n_recv, result_of(s->kind, run->world_size)) == n_recv);
    else
      rank_fails(run, status, err, s->code, "", s->about);
  } else {
    rank_fails(run, status, err, s->code, "", s->about);
    fill(send, n_send, kLater);
    if (run->rank == 0) s->gave_up = 1;
    wait_for(&s->ended);
  }
  gsel_comm_free(comm);
}

static const gsel_collective_kind kKinds[] = {GSEL_COLLECTIVE_BROADCAST, GSEL_COLLECTIVE_ALLGATHER,
                                              GSEL_COLLECTIVE_ALLTOALL, GSEL_COLLECTIVE_ALLREDUCE,
                                              GSEL_COLLECTIVE_REDUCE_SCATTER};

/* Rank 2 dies with all that rank 1 needs from it told: nothing else would stop rank 1. In a private allreduce rank 2
 * would wait for rank 1 before. */
static void a_buffer_that_was_taken_back_at_a_death_is_no_result(void** state) {
  (void)state;
  for (int shared = 0; shared <= 1; ++shared)
    for (size_t k = 0; k < sizeof kKinds / sizeof *kKinds; ++k)
      if (shared || kKinds[k] != GSEL_COLLECTIVE_ALLREDUCE)
        run_stopped(3, make_stage((struct stage){kKinds[k], shared, GSEL_ERR_PEER, 2, 0, 0}),
                    "stop@header:rank=1:call=2,kill@copied:rank=2:call=2", calls_and_changes_its_buffer);
}

static void a_buffer_that_was_taken_back_at_a_timeout_is_no_result(void** state) {
  (void)state;
  for (int shared = 0; shared <= 1; ++shared)
    for (size_t k = 0; k < sizeof kKinds / sizeof *kKinds; ++k)
      run_stopped(2, make_stage((struct stage){kKinds[k], shared, GSEL_ERR_TIMEOUT, 1, 0, 0}),
                  "stop@header:rank=1:call=2", calls_and_changes_its_buffer);
}

/* ---- a rank that is stopped while it writes to the others' buffers --------------------------------------- */

static int32_t stops_once(void* accumulated, const void* next, size_t count, gsel_dtype dtype, void* user_data) {
  (void)dtype;
  int* stops = user_data;
  if (*stops) {
    *stops = 0;
    raise(SIGSTOP);
  }
  float* a = accumulated;
  for (size_t i = 0; i < count; ++i) a[i] += ((const float*)next)[i];
  return 0;
}

/* Rank 0 is left alone by the shrink, or with rank 2. Its buffer is not the call's any more: it stays as it is, or it
 * is freed and its memory serves something else, a new communicator's too. */
static void is_written_to_by_nobody_after_the_error(rank_run* run) {
  struct stage* s = run->user;
  gsel_error* err;
  gsel_comm *comm, *after, *more[8];
  gsel_op sum;
  int stops = run->rank == 1;
  rank_ok(run, rank_join(run, &comm, &err), err);
  float *send = buffer(comm, 1, kCount), *recv = buffer(comm, 1, kCount);
  rank_check(run, send && recv);
  fill(send, kCount, kFirst);
  rank_ok(run, gsel_op_create((gsel_str){"stops", 5}, 1, stops_once, &stops, NULL, &sum, &err), err);
  const gsel_status status = gsel_allreduce(comm, send, recv, kCount, GSEL_F32, sum, &err);
  rank_fails(run, status, err, GSEL_ERR_TIMEOUT, "", 1);
  if (run->rank == 1) return;
  if (s->shared) { /* the same buffer */
    fill(recv, kCount, kLater);
  } else { /* freed, and its place is another's */
    rank_ok(run, gsel_comm_shrink(comm, &after, &err), err);
    rank_ok(run, gsel_mem_free(comm, recv, &err), err);
    rank_ok(run, gsel_mem_alloc(comm, kCount * sizeof(float), (void**)&recv, &err), err);
    for (size_t i = 0; i < sizeof more / sizeof *more; ++i) rank_ok(run, gsel_comm_dup(after, &more[i], &err), err);
    fill(recv, kCount, kLater);
  }
  if (run->rank == 0) s->gave_up = 1;
  wait_for(&s->ended);
  rank_check(run, first_other(recv, kCount, kLater) == kCount);
  for (size_t i = 0; !s->shared && i < sizeof more / sizeof *more; ++i) {
    float x = 1;
    rank_ok(run, gsel_allreduce(more[i], &x, &x, 1, GSEL_F32, GSEL_SUM, &err), err);
    rank_check(run, x == (float)(run->world_size - 1));
    gsel_comm_free(more[i]);
  }
  if (!s->shared) gsel_comm_free(after);
  gsel_comm_free(comm);
}

static void a_stopped_rank_writes_to_nobody_when_it_goes_on(void** state) {
  (void)state;
  for (int32_t n = 2; n <= 3; ++n)
    for (int same = 0; same <= 1; ++same)
      run_stopped(n, make_stage((struct stage){0, same, GSEL_ERR_TIMEOUT, 1, 0, 0}), NULL,
                  is_written_to_by_nobody_after_the_error);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_buffer_that_was_taken_back_at_a_death_is_no_result),
      cmocka_unit_test(a_buffer_that_was_taken_back_at_a_timeout_is_no_result),
      cmocka_unit_test(a_stopped_rank_writes_to_nobody_when_it_goes_on),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
