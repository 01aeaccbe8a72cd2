/* fake/cuda/test_comm_lifetime.c: memory and streams of communicators on devices when these are made from one another,
 * break, are made whole again, or go: memory belongs to all that were made from one, and a stream stays. */
#include "fake/cuda/joined.h"

/* What the ranks of a body share. */
typedef struct over {
  const char* transport;
  int32_t step;
} over;

static void as_ranks_over(int32_t n, rank_body body, const char* transport) {
  over* shared = shared_memory(sizeof *shared);
  shared->transport = transport;
  as_processes(n, body, shared);
  munmap(shared, sizeof *shared);
}

/* ---- memory outlives the communicator that gave it ------------------------------------------------------------------
 */

static void the_parent_goes_first(rank_run* run, int splits) {
  joined j, child;
  gsel_error* err = NULL;
  rank_check(run, join_over(run, "nccl", 0, &j) == GSEL_OK);
  child = j;
  if (splits)
    rank_ok(run, gsel_comm_split(j.comm, 0, run->rank, &child.comm, &err), err);
  else
    rank_ok(run, gsel_comm_dup(j.comm, &child.comm, &err), err);
  rank_ok(run, gsel_comm_set_stream(child.comm, j.g.stream, &err), err);
  rank_ok(run, gsel_comm_synchronize(j.comm, &err), err);
  gsel_comm_free(j.comm);
  rank_ok(run, gsel_allreduce(child.comm, j.memory, j.memory, COUNT, GSEL_F32, GSEL_SUM, &err), err);
  rank_ok(run, gsel_comm_synchronize(child.comm, &err), err);
  rank_check(run, element_5(&child, j.memory) == 110);
  rank_ok(run, gsel_mem_free(child.comm, j.memory, &err), err);
  gsel_comm_free(child.comm);
  rank_check(run, cuda.violations() == 0);
}
static void dup_outlives(rank_run* run) {
  the_parent_goes_first(run, 0);
}
static void split_outlives(rank_run* run) {
  the_parent_goes_first(run, 1);
}

static void test_memory_outlives_the_communicator_that_gave_it(void** state) {
  (void)state;
  as_processes(2, dup_outlives, NULL);
  as_processes(2, split_outlives, NULL);
}

static void freed_through_the_child(rank_run* run) {
  joined j;
  gsel_comm* twin;
  gsel_error* err = NULL;
  rank_check(run, join_over(run, "nccl", 0, &j) == GSEL_OK);
  rank_ok(run, gsel_comm_dup(j.comm, &twin, &err), err);
  finish(&j.g);
  rank_ok(run, gsel_mem_free(twin, j.memory, &err), err);
  gsel_comm_free(twin);
  gsel_comm_free(j.comm);
}

static void freed_when_broken(rank_run* run) {
  over* shared = (over*)run->user;
  joined j;
  gsel_error* err = NULL;
  rank_check(run, join_over(run, "nccl", 0, &j) == GSEL_OK);
  rank_check(run, connect_ranks(&j) == GSEL_OK);
  if (run->rank == 1) reach_step(&shared->step, 1);
  await_step(&shared->step, 1);
  if (run->rank == 0) gsel_comm_abort(j.comm, gsel_str_from("by intent"));
  while (gsel_comm_get_async_error(j.comm, NULL) == GSEL_OK) usleep(1000);
  rank_ok(run, gsel_mem_free(j.comm, j.memory, &err), err);
  gsel_comm_free(j.comm);
}

static void test_memory_is_freed_through_any_of_them_and_when_broken(void** state) {
  (void)state;
  as_processes(2, freed_through_the_child, NULL);
  as_ranks_over(2, freed_when_broken, "nccl");
}

/* Through host memory as well. */
static void of_others(rank_run* run) {
  const over* shared = (const over*)run->user;
  joined j;
  gsel_error* err = NULL;
  int on_stack;
  rank_check(run, join_over(run, shared->transport, 0, &j) == GSEL_OK);
  rank_fails(run, gsel_mem_free(j.comm, &on_stack, &err), err, GSEL_ERR_ARG, "not of gsel_mem_alloc", -1);
  rank_fails(run, gsel_mem_free(j.comm, (void*)alloc(&j.g, 64), &err), err, GSEL_ERR_ARG, "not of gsel_mem_alloc", -1);
  finish(&j.g);
  cuda.push(j.g.context);
  gsel_comm_free(j.comm);
  rank_check(run,
             CUDA("cuMemGetAddressRange_v2", uintptr_t*, size_t*, uintptr_t)(NULL, NULL, (uintptr_t)j.memory) != 0);
  cuda.pop(&(void*){NULL});
}

static void test_memory_of_others_is_not_freed_and_own_goes_with_the_last(void** state) {
  (void)state;
  as_ranks_over(1, of_others, "nccl");
  as_ranks_over(1, of_others, "host");
}

/* ---- after a failure ----------------------------------------------------------------------------------------------
 */

static void after_resync(rank_run* run) {
  over* shared = (over*)run->user;
  joined j;
  gsel_error* err = NULL;
  rank_check(run, join_over(run, shared->transport, 0, &j) == GSEL_OK);
  rank_check(run, connect_ranks(&j) == GSEL_OK);
  if (run->rank == 1) reach_step(&shared->step, 1);
  await_step(&shared->step, 1);
  if (run->rank == 0) gsel_comm_abort(j.comm, gsel_str_from("by intent"));
  while (gsel_comm_get_async_error(j.comm, NULL) == GSEL_OK) usleep(1000);
  rank_ok(run, gsel_comm_resync(j.comm, &err), err);
  float two[COUNT];
  for (int i = 0; i < COUNT; ++i) two[i] = (float)(1000 * (run->rank + 1) + i);
  copy(&j.g, j.memory, two, sizeof two);
  rank_ok(run, gsel_allreduce(j.comm, j.memory, j.memory, COUNT, GSEL_F32, GSEL_SUM, &err), err);
  rank_check(run, element_5(&j, j.memory) == 3010);
  rank_ok(run, gsel_comm_synchronize(j.comm, &err), err);
  rank_ok(run, gsel_mem_free(j.comm, j.memory, &err), err);
  gsel_comm_free(j.comm);
  rank_check(run, cuda.violations() == 0);
}

static void test_memory_and_stream_stay_over_a_resync(void** state) {
  (void)state;
  as_ranks_over(2, after_resync, "nccl");
  as_ranks_over(2, after_resync, "host");
}

/* The message of a resync that fails says: use gsel_comm_shrink. */
static void shrinks_after_a_failed_resync(rank_run* run) {
  over* shared = (over*)run->user;
  joined j, rest;
  gsel_error* err = NULL;
  rank_check(run, join_over(run, shared->transport, 0, &j) == GSEL_OK);
  rank_check(run, connect_ranks(&j) == GSEL_OK);
  __atomic_add_fetch(&shared->step, 1, __ATOMIC_SEQ_CST);
  await_step(&shared->step, 2);
  if (run->rank == 1) {
    gsel_comm_free(j.comm);
    return;
  }
  while (gsel_comm_resync(j.comm, NULL) == GSEL_OK) usleep(1000);
  rest = j;
  rank_ok(run, gsel_comm_shrink(j.comm, &rest.comm, &err), err);
  rank_ok(run, gsel_comm_set_stream(rest.comm, j.g.stream, &err), err);
  gsel_comm_free(j.comm);
  rank_ok(run, gsel_allreduce(rest.comm, j.memory, j.memory, COUNT, GSEL_F32, GSEL_SUM, &err), err);
  rank_ok(run, gsel_comm_synchronize(rest.comm, &err), err);
  rank_check(run, element_5(&rest, j.memory) == 5);
  gsel_comm_free(rest.comm);
}

static void test_the_rest_works_on_devices_after_a_failed_resync(void** state) {
  (void)state;
  as_ranks_over(2, shrinks_after_a_failed_resync, "nccl");
  as_ranks_over(2, shrinks_after_a_failed_resync, "host");
}

/* A wait of the program's own comes back as well when the work of a call was ended, and its results are undefined. */
static void own_wait(rank_run* run) {
  volatile int32_t* step = (volatile int32_t*)run->user;
  joined j;
  gsel_error* err = NULL;
  rank_check(run, join_over(run, "nccl", 0, &j) == GSEL_OK);
  run->timeout_s = 20;
  rank_ok(run, gsel_comm_set_timeout(j.comm, 20, &err), err);
  rank_check(run, connect_ranks(&j) == GSEL_OK);
  if (run->rank == 0) {
    rank_ok(run, gsel_allreduce(j.comm, j.memory, j.memory, COUNT, GSEL_F32, GSEL_SUM, &err), err);
    rank_ok(run, gsel_comm_get_async_error(j.comm, &err), err);
    reach_step(step, 1);
    finish(&j.g); /* cuStreamSynchronize */
  } else {
    await_step(step, 1);
    gsel_comm_abort(j.comm, gsel_str_from("by intent"));
  }
  rank_fails(run, gsel_comm_get_async_error(j.comm, &err), err, GSEL_ERR_ABORTED, "by intent", 1);
  gsel_comm_free(j.comm);
}

static void test_a_wait_of_the_program_that_an_abort_ended_is_told(void** state) {
  (void)state;
  as_two(own_wait);
}

/* A call on registered memory is under way when the program unregisters it, or frees the communicator: the memory stays
 * registered until the result is there. */
static void deregisters_behind_the_work(rank_run* run, int unregisters) {
  joined j;
  gsel_error* err = NULL;
  rank_check(run, join_over(run, "nccl", 0, &j) == GSEL_OK);
  float* own = (float*)alloc(&j.g, 4096);
  const float mine[COUNT] = {1, 2, 3, 4, 5, 6};
  copy(&j.g, own, mine, sizeof mine);
  rank_ok(run, gsel_mem_register(j.comm, own, 4096, &err), err);
  rank_ok(run, gsel_allreduce(j.comm, own, own, COUNT, GSEL_F32, GSEL_SUM, &err), err);
  if (unregisters) rank_ok(run, gsel_mem_unregister(j.comm, own, &err), err);
  if (!unregisters) gsel_comm_free(j.comm);
  rank_check(run, element_5(&j, own) == 12);
  rank_check(run, cuda.violations() == 0);
  if (unregisters) gsel_comm_free(j.comm);
}

static void leaves_with_work_on_registered_memory(rank_run* run) {
  deregisters_behind_the_work(run, 0);
}
static void unregisters_with_work_on_memory(rank_run* run) {
  deregisters_behind_the_work(run, 1);
}

static void test_leaving_deregisters_behind_the_work(void** state) {
  (void)state;
  as_two(leaves_with_work_on_registered_memory);
  as_two(unregisters_with_work_on_memory);
}

/* Registered by both and used by one: NCCL reaches it where it is, and says nothing. */
static void one_rank_uses_what_is_registered(rank_run* run) {
  joined j;
  gsel_error* err = NULL;
  rank_check(run, join_over(run, "nccl", 0, &j) == GSEL_OK);
  float* own = (float*)alloc(&j.g, 4096);
  rank_ok(run, gsel_mem_register(j.comm, own, 4096, &err), err);
  rank_ok(run, gsel_allreduce(j.comm, own + 8, own + 8, COUNT, GSEL_F32, GSEL_SUM, &err), err); /* both: fine */
  rank_ok(run, gsel_reduce(j.comm, own, run->rank ? NULL : own + 32, COUNT, GSEL_F32, GSEL_SUM, 0, &err), err);
  rank_ok(run, gsel_comm_synchronize(j.comm, &err), err);
  const double began = seconds();
  float* used = run->rank ? j.memory : own;
  const gsel_status status = gsel_allreduce(j.comm, used, used, COUNT, GSEL_F32, GSEL_SUM, &err);
  expect_end(run, &j, began, status, &err, GSEL_ERR_MISMATCH, " on a stream in registered memory, rank 1 called ");
  meet(run, 2);
  gsel_comm_free(j.comm);
}

static void test_registered_memory_that_one_rank_uses_is_a_mismatch(void** state) {
  (void)state;
  as_two(one_rank_uses_what_is_registered);
}

static void registers_more_than_the_other(rank_run* run) {
  joined j;
  gsel_error* err = NULL;
  rank_check(run, join_over(run, "nccl", 0, &j) == GSEL_OK);
  void* own = (void*)alloc(&j.g, 8192);
  rank_fails(run, gsel_mem_register(j.comm, own, run->rank ? 8192 : 4096, &err), err, GSEL_ERR_MISMATCH,
             "registers 8192 bytes, rank 0 ", 1);
  rank_ok(run, gsel_mem_register(j.comm, own, 4096, &err), err);
  gsel_comm_free(j.comm);
}

static void test_as_much_is_registered_on_every_rank(void** state) {
  (void)state;
  as_two(registers_more_than_the_other);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_memory_outlives_the_communicator_that_gave_it),
      cmocka_unit_test(test_memory_is_freed_through_any_of_them_and_when_broken),
      cmocka_unit_test(test_memory_of_others_is_not_freed_and_own_goes_with_the_last),
      cmocka_unit_test(test_memory_and_stream_stay_over_a_resync),
      cmocka_unit_test(test_the_rest_works_on_devices_after_a_failed_resync),
      cmocka_unit_test(test_a_wait_of_the_program_that_an_abort_ended_is_told),
      cmocka_unit_test(test_leaving_deregisters_behind_the_work),
      cmocka_unit_test(test_registered_memory_that_one_rank_uses_is_a_mismatch),
      cmocka_unit_test(test_as_much_is_registered_on_every_rank),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
