/* fake/cuda/test_comm_nccl.c: how the transport nccl keeps the rules of NCCL: who may call what beside what, how a
 * communicator ends, and what becomes of memory. Ranks are processes unless they share something. */
#include "fake/cuda/program.h"

enum { COUNT = 4 };

/* A communicator over nccl, with memory that holds the rank and its successors. */
typedef struct joined {
  gpu g;
  gsel_comm* comm;
  float* memory;
} joined;

static joined join_nccl(rank_run* run, uint32_t flags) {
  joined j = {.comm = NULL};
  gsel_error* err = NULL;
  load_doubles("fake_libnccl.so");
  j.g = open_gpu(run->rank);
  if (join_with(run, "nccl", run->rank, flags, &j.comm, &err) != GSEL_OK ||
      gsel_comm_set_stream(j.comm, j.g.stream, &err) != GSEL_OK ||
      gsel_mem_alloc(j.comm, COUNT * sizeof(float), (void**)&j.memory, &err) != GSEL_OK) {
    gsel_error_format(err, run->failure, sizeof run->failure);
    gsel_error_free(err);
    j.comm = NULL;
    return j;
  }
  float mine[COUNT];
  for (int i = 0; i < COUNT; ++i) mine[i] = (float)(run->rank + i);
  copy(&j.g, j.memory, mine, sizeof mine);
  return j;
}

static gsel_status sum(const joined* j, float* memory, gsel_error** err) {
  return gsel_allreduce(j->comm, memory, memory, COUNT, GSEL_F32, GSEL_SUM, err);
}

/* ---- who may call what beside what --------------------------------------------------------------------------------
 */

/* The double ends a process whose threads are inside of NCCL with one communicator at a time. */
static void many_calls(rank_run* run) {
  setenv("GSEL_FAKE_NCCL_POLL_US", "3000", 1); /* the watching thread looks every 50 ms */
  joined j = join_nccl(run, 0);
  rank_check(run, j.comm != NULL);
  gsel_error* err = NULL;
  for (int i = 0; i < 30; ++i) rank_ok(run, sum(&j, j.memory, &err), err);
  rank_ok(run, gsel_comm_synchronize(j.comm, &err), err);
  gsel_comm_free(j.comm);
}

static void test_one_thread_at_a_time_is_inside_of_nccl(void** state) {
  (void)state;
  as_processes(2, many_calls, NULL);
}

typedef struct beside {
  joined j;
  gsel_status status;
} beside;

static void* first_call(void* argument) {
  beside* b = (beside*)argument;
  b->status = sum(&b->j, b->j.memory, NULL);
  return NULL;
}

/* A first call waits for the host of the other rank, which is in a call on another communicator of the same device. */
static void calls_on_two_communicators(rank_run* run) {
  beside b = {.j = join_nccl(run, 0)};
  rank_check(run, b.j.comm != NULL);
  joined twin = b.j;
  gsel_error* err = NULL;
  void* stream;
  cuda.push(b.j.g.context);
  cuda.create(&stream, 1, 0);
  cuda.pop(&(void*){NULL});
  rank_ok(run, gsel_comm_dup(b.j.comm, &twin.comm, &err), err);
  rank_ok(run, gsel_comm_set_stream(twin.comm, stream, &err), err);
  rank_ok(run, gsel_mem_alloc(twin.comm, COUNT * sizeof(float), (void**)&twin.memory, &err), err);
  pthread_t other;
  if (run->rank == 0) {
    pthread_create(&other, NULL, first_call, &b);
    usleep(20000); /* until it waits; were it later, it would find the way free */
  }
  rank_ok(run, sum(&twin, twin.memory, &err), err);
  rank_ok(run, gsel_comm_synchronize(twin.comm, &err), err);
  if (run->rank == 0)
    pthread_join(other, NULL);
  else
    first_call(&b);
  rank_check(run, b.status == GSEL_OK);
  rank_ok(run, gsel_comm_synchronize(b.j.comm, &err), err);
  gsel_comm_free(twin.comm);
  gsel_comm_free(b.j.comm);
}

static void test_no_lock_is_held_while_ranks_are_waited_for(void** state) {
  (void)state;
  rank_run* runs = ranks_prepare(2, NULL);
  for (int r = 0; r < 2; ++r) runs[r].timeout_s = 5;
  ranks_run_processes(runs, 2, calls_on_two_communicators);
  ranks_verdict(runs, 2);
}

/* ---- how a communicator ends ----------------------------------------------------------------------------------------
 */

/* The program frees the communicator and reads the result then. */
static void leaves_at_once(rank_run* run) {
  joined j = join_nccl(run, 0);
  rank_check(run, j.comm != NULL);
  gsel_error* err = NULL;
  float* own = (float*)alloc(&j.g, 4096);
  const float mine[COUNT] = {1, 2, 3, 4};
  float got[COUNT] = {0};
  copy(&j.g, own, mine, sizeof mine);
  rank_ok(run, sum(&j, own, &err), err);
  gsel_comm_free(j.comm);
  copy(&j.g, got, own, sizeof got);
  finish(&j.g);
  for (int i = 0; i < COUNT; ++i) rank_check(run, got[i] == 2 * mine[i]);
  rank_check(run, cuda.violations() == 0);
}

static void test_leaving_waits_for_work(void** state) {
  (void)state;
  as_processes(2, leaves_at_once, NULL);
}

static void* frees(void* comm) {
  gsel_comm_free((gsel_comm*)comm);
  return NULL;
}

/* Rank 0 leaves with a call that waits for rank 1, which waits for what rank 0 does on the same device meanwhile. */
static void leaves_beside_others(rank_run* run) {
  volatile int32_t* step = (volatile int32_t*)run->user;
  joined j = join_nccl(run, 0);
  rank_check(run, j.comm != NULL);
  gsel_comm* twin;
  gsel_error* err = NULL;
  float* own = (float*)alloc(&j.g, 4096);
  const float mine[COUNT] = {1, 2, 3, 4};
  float got[COUNT] = {0};
  copy(&j.g, own, mine, sizeof mine);
  rank_ok(run, gsel_comm_dup(j.comm, &twin, &err), err);
  rank_ok(run, sum(&j, j.memory, &err), err); /* connects */
  rank_ok(run, gsel_comm_synchronize(j.comm, &err), err);
  pthread_t leaving;
  if (run->rank == 0) {
    rank_ok(run, sum(&j, own, &err), err);
    pthread_create(&leaving, NULL, frees, j.comm);
    usleep(20000); /* until it waits; were it later, it would find the way free */
  }
  rank_ok(run, gsel_mem_register(twin, (void*)alloc(&j.g, 4096), 4096, &err), err);
  if (run->rank == 0) {
    reach_step(step, 1);
    pthread_join(leaving, NULL);
  } else {
    await_step(step, 1);
    rank_ok(run, sum(&j, own, &err), err);
    gsel_comm_free(j.comm);
  }
  copy(&j.g, got, own, sizeof got);
  finish(&j.g);
  for (int i = 0; i < COUNT; ++i) rank_check(run, got[i] == 2 * mine[i]);
  gsel_comm_free(twin);
}

static void test_leaving_holds_no_lock_of_the_device(void** state) {
  (void)state;
  int32_t* step = shared_memory(sizeof *step);
  rank_run* runs = ranks_prepare(2, step);
  for (int r = 0; r < 2; ++r) runs[r].timeout_s = 2;
  ranks_run_processes(runs, 2, leaves_beside_others);
  ranks_verdict(runs, 2);
  munmap(step, sizeof *step);
}

static void abort_hangs(rank_run* run) {
  setenv("GSEL_FAKE_NCCL_ABORT_MS", "hang", 1);
  joined j = join_nccl(run, 0);
  rank_check(run, j.comm != NULL);
  gsel_error* err = NULL;
  rank_ok(run, sum(&j, j.memory, &err), err);
  rank_ok(run, gsel_comm_synchronize(j.comm, &err), err);
  if (run->rank == 1) reach_step((volatile int32_t*)run->user, 1);
  await_step((volatile int32_t*)run->user, 1);
  const double began = seconds();
  if (run->rank == 0) gsel_comm_abort(j.comm, gsel_str_from("by intent"));
  gsel_status status = GSEL_OK;
  while (status == GSEL_OK && seconds() - began < 20) status = gsel_comm_get_async_error(j.comm, NULL);
  rank_fails(run, gsel_barrier(j.comm, &err), err, GSEL_ERR_ABORTED, "by intent", 0);
  gsel_comm_free(j.comm);
  rank_check(run, seconds() - began < 20);
}

static void test_an_abort_that_hangs_is_left_behind(void** state) {
  (void)state;
  int32_t* step = shared_memory(sizeof *step);
  as_processes(2, abort_hangs, step);
  munmap(step, sizeof *step);
}

/* Threads: NCCL frees what it has registered with the last of them, which has not looked yet. */
static void one_rank_goes_first(rank_run* run) {
  volatile int32_t* step = (volatile int32_t*)run->user;
  joined j = join_nccl(run, GSEL_COMM_NO_THREAD);
  rank_check(run, j.comm != NULL);
  gsel_error* err = NULL;
  rank_ok(run, gsel_mem_register(j.comm, j.memory, COUNT * sizeof(float), &err), err);
  rank_ok(run, sum(&j, j.memory, &err), err);
  rank_ok(run, gsel_comm_synchronize(j.comm, &err), err);
  if (run->rank == 0) {
    await_step(step, 1);
    gsel_comm_abort(j.comm, gsel_str_from("by intent"));
    rank_fails(run, gsel_comm_get_async_error(j.comm, &err), err, GSEL_ERR_ABORTED, "by intent", 0);
    gsel_comm_free(j.comm);
    reach_step(step, 2);
  } else {
    reach_step(step, 1);
    await_step(step, 2);
    rank_fails(run, gsel_comm_get_async_error(j.comm, &err), err, GSEL_ERR_ABORTED, "by intent", 0);
    gsel_comm_free(j.comm);
  }
}

static void test_memory_lives_until_the_last_rank_has_let_go(void** state) {
  (void)state;
  load_doubles("fake_libnccl.so");
  int32_t* step = shared_memory(sizeof *step);
  as_threads(2, one_rank_goes_first, step);
  no_violations();
  munmap(step, sizeof *step);
}

/* ---- what NCCL and the host know ------------------------------------------------------------------------------------
 */

/* NCCL says that a connection has ended, the host who has. */
static void a_death_that_nccl_notices(rank_run* run) {
  setenv("GSEL_FAKE_NCCL_DEATHS", "told", 1);
  joined j = join_nccl(run, 0);
  rank_check(run, j.comm != NULL);
  gsel_error* err = NULL;
  gsel_status status = sum(&j, j.memory, &err);
  if (status == GSEL_OK) status = gsel_comm_synchronize(j.comm, &err);
  if (run->rank == 1) raise(SIGKILL);
  if (status == GSEL_OK) status = sum(&j, j.memory, &err);
  if (status == GSEL_OK) status = gsel_comm_synchronize(j.comm, &err);
  rank_fails(run, status, err, GSEL_ERR_PEER, "rank 1 (pid", 1);
  gsel_comm_free(j.comm);
}

static void survives(rank_body body) {
  rank_run* runs = ranks_prepare(2, NULL);
  const pid_t survivor = rank_fork(&runs[0], body), victim = rank_fork(&runs[1], body);
  int status = 0;
  waitpid(victim, &status, 0);
  assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  waitpid(survivor, &status, 0);
  if (status != 0) fail_msg("the survivor ended with wait status 0x%x", (unsigned)status);
  ranks_verdict(runs, 2);
}

static void test_the_dead_rank_is_named_though_nccl_is_first(void** state) {
  (void)state;
  survives(a_death_that_nccl_notices);
}

/* ---- memory ---------------------------------------------------------------------------------------------------------
 */

static void memory_of_nccl(rank_run* run) {
  setenv("GSEL_FAKE_CUDA_OOM", "3", 1); /* behind the barrier's word and the memory of join_nccl */
  joined j = join_nccl(run, 0);
  rank_check(run, j.comm != NULL);
  gsel_error* err = NULL;
  void* more = NULL;
  rank_fails(run, gsel_mem_alloc(j.comm, 4096, &more, &err), err, GSEL_ERR_NOMEM, "4096 bytes of memory were asked for",
             -1);
  rank_ok(run, gsel_mem_alloc(j.comm, 4096, &more, &err), err);
  char got[4096];
  memset(got, 7, sizeof got);
  copy(&j.g, got, more, sizeof got);
  finish(&j.g);
  for (size_t i = 0; i < sizeof got; ++i) rank_check(run, got[i] == 0);
  gsel_comm_free(j.comm);
  rank_check(run, cuda.violations() == 0);
}

static void test_memory_is_zeroed_and_its_lack_is_named(void** state) {
  (void)state;
  as_processes(1, memory_of_nccl, NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      /* Processes first: each loads the doubles for itself. */
      cmocka_unit_test(test_one_thread_at_a_time_is_inside_of_nccl),
      cmocka_unit_test(test_no_lock_is_held_while_ranks_are_waited_for),
      cmocka_unit_test(test_leaving_waits_for_work),
      cmocka_unit_test(test_leaving_holds_no_lock_of_the_device),
      cmocka_unit_test(test_an_abort_that_hangs_is_left_behind),
      cmocka_unit_test(test_the_dead_rank_is_named_though_nccl_is_first),
      cmocka_unit_test(test_memory_is_zeroed_and_its_lack_is_named),
      cmocka_unit_test(test_memory_lives_until_the_last_rank_has_let_go),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
