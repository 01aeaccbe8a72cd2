/* fake/cuda/test_comm_groups.c: groups of calls on devices: over two communicators, of which each knows what is under
 * way on it, and through host memory, where calls may depend on each other. */
#include "fake/cuda/joined.h"

/* A rank with a communicator and a twin of it on the same stream, both connected. */
static gsel_status join_twins(rank_run* run, joined* j, joined* twin) {
  gsel_error* err = NULL;
  gsel_status status = join_over(run, "nccl", 0, j);
  *twin = *j;
  if (status == GSEL_OK) status = gsel_comm_dup(j->comm, &twin->comm, &err);
  if (status == GSEL_OK) status = gsel_comm_set_stream(twin->comm, j->g.stream, &err);
  if (status == GSEL_OK) status = gsel_mem_alloc(twin->comm, COUNT * sizeof(float), (void**)&twin->memory, &err);
  if (status == GSEL_OK) status = connect_ranks(j);
  if (status == GSEL_OK) status = connect_ranks(twin);
  if (err) gsel_error_format(err, run->failure, sizeof run->failure);
  gsel_error_free(err);
  return status;
}

static gsel_collective call_on(gsel_collective_kind kind, float* memory) {
  gsel_collective call = GSEL_COLLECTIVE_INIT;
  call.kind = kind;
  call.dtype = GSEL_F32;
  call.op = GSEL_SUM;
  call.recv = memory;
  call.send = kind == GSEL_COLLECTIVE_ALLREDUCE ? memory : NULL;
  call.count = COUNT;
  return call;
}

static void second_call_differs(rank_run* run) {
  joined j, twin;
  gsel_error* err = NULL;
  rank_check(run, join_twins(run, &j, &twin) == GSEL_OK);
  const gsel_collective a = call_on(GSEL_COLLECTIVE_ALLREDUCE, j.memory);
  gsel_collective b = call_on(GSEL_COLLECTIVE_ALLREDUCE, twin.memory);
  b.count = run->rank ? 8 : 4;
  gsel_comm* comms[] = {j.comm, twin.comm};
  const gsel_collective* calls[] = {&a, &b};
  const double began = seconds();
  gsel_status status = gsel_group_run(comms, calls, 2, &err);
  if (status == GSEL_OK) status = gsel_comm_synchronize(twin.comm, &err);
  expect_end(run, &j, began, status, &err, GSEL_ERR_MISMATCH, "");
  rank_check(run, run->failure[0] || gsel_comm_synchronize(j.comm, NULL) != GSEL_OK);
  meet(run, 2);
  gsel_comm_free(twin.comm);
  gsel_comm_free(j.comm);
}

/* Rank 0 comes last and finds it: the first communicator is broken by it, and about rank 1 as the second is. */
static void found_by_the_last(rank_run* run) {
  joined j, twin;
  gsel_error* err = NULL;
  rank_check(run, join_twins(run, &j, &twin) == GSEL_OK);
  const gsel_collective a = call_on(GSEL_COLLECTIVE_ALLREDUCE, j.memory);
  gsel_collective b = call_on(GSEL_COLLECTIVE_ALLREDUCE, twin.memory);
  b.count = run->rank ? 8 : 4;
  gsel_comm* comms[] = {j.comm, twin.comm};
  const gsel_collective* calls[] = {&a, &b};
  if (run->rank == 0) {
    await_step((volatile int32_t*)run->user, 1);
    rank_fails(run, gsel_group_run(comms, calls, 2, &err), err, GSEL_ERR_MISMATCH, "count 8", 1);
  } else {
    rank_ok(run, gsel_group_run(comms, calls, 2, &err), err);
    reach_step((volatile int32_t*)run->user, 1);
  }
  rank_fails(run, gsel_comm_synchronize(j.comm, &err), err, GSEL_ERR_MISMATCH, "count 8", 1);
  gsel_comm_free(twin.comm);
  gsel_comm_free(j.comm);
}

static void test_a_group_whose_second_call_differs_breaks_both(void** state) {
  (void)state;
  as_two(second_call_differs);
  as_two(found_by_the_last);
}

/* The second adds up what the first has made. */
static void calls_that_depend(rank_run* run) {
  joined j;
  gsel_error* err = NULL;
  rank_check(run, join_over(run, "host", 0, &j) == GSEL_OK);
  const gsel_collective a = call_on(GSEL_COLLECTIVE_ALLREDUCE, j.memory);
  gsel_comm* comms[] = {j.comm, j.comm};
  const gsel_collective* calls[] = {&a, &a};
  rank_ok(run, gsel_group_run(comms, calls, 2, &err), err);
  rank_ok(run, gsel_comm_synchronize(j.comm, &err), err);
  rank_check(run, element_5(&j, j.memory) == 220);
  gsel_comm_free(j.comm);
}

static void test_calls_of_a_group_run_in_order_through_host_memory(void** state) {
  (void)state;
  as_two(calls_that_depend);
}

/* A message on the second that nobody sends, and that waits for no connection. */
static void second_call_never_ends(rank_run* run) {
  joined j, twin;
  gsel_error* err = NULL;
  rank_check(run, join_twins(run, &j, &twin) == GSEL_OK);
  const int32_t other = 1 - run->rank;
  rank_ok(run, gsel_sendrecv(twin.comm, j.memory, COUNT, other, twin.memory, COUNT, other, GSEL_F32, &err), err);
  rank_ok(run, gsel_comm_synchronize(twin.comm, &err), err);
  const gsel_collective sum = call_on(GSEL_COLLECTIVE_ALLREDUCE, j.memory);
  gsel_collective message = call_on(GSEL_COLLECTIVE_RECV, twin.memory);
  message.root = other;
  message.op = 0;
  gsel_comm* comms[] = {j.comm, twin.comm};
  const gsel_collective* calls[] = {&sum, &message};
  const double began = seconds();
  const gsel_status status = gsel_group_run(comms, calls, 2, &err);
  expect_end(run, &twin, began, status, &err, GSEL_ERR_TIMEOUT, "timed out");
  if (!run->failure[0]) { /* the end of the second may have let the first go on in its time */
    const gsel_status first = gsel_comm_synchronize(j.comm, NULL);
    rank_check(run, first == GSEL_ERR_TIMEOUT || (first == GSEL_OK && element_5(&j, j.memory) == 110));
  }
  meet(run, 2);
  gsel_comm_free(twin.comm);
  gsel_comm_free(j.comm);
}

static void test_a_group_whose_second_call_never_ends_is_ended(void** state) {
  (void)state;
  as_two(second_call_never_ends);
}

/* The twin's call is under way when its memory is unregistered, or the twin is freed. */
static void deregisters_on_the_twin(rank_run* run, int unregisters) {
  joined j, twin;
  gsel_error* err = NULL;
  rank_check(run, join_twins(run, &j, &twin) == GSEL_OK);
  float* own = (float*)alloc(&j.g, 4096);
  const float mine[COUNT] = {1, 2, 3, 4, 5, 6};
  copy(&j.g, own, mine, sizeof mine);
  rank_ok(run, gsel_mem_register(twin.comm, own, 4096, &err), err);
  const gsel_collective a = call_on(GSEL_COLLECTIVE_ALLREDUCE, j.memory);
  const gsel_collective b = call_on(GSEL_COLLECTIVE_ALLREDUCE, own);
  gsel_comm* comms[] = {j.comm, twin.comm};
  const gsel_collective* calls[] = {&a, &b};
  rank_ok(run, gsel_group_run(comms, calls, 2, &err), err);
  if (unregisters) rank_ok(run, gsel_mem_unregister(twin.comm, own, &err), err);
  gsel_comm_free(twin.comm);
  rank_check(run, element_5(&j, own) == 12);
  rank_check(run, element_5(&j, j.memory) == 110);
  gsel_comm_free(j.comm);
  for (int i = 0; i < cuda.violations(); ++i)
    snprintf(run->failure, sizeof run->failure, "violation: %s", cuda.violation(i));
}

static void leaves_with_the_work_of_a_group(rank_run* run) {
  deregisters_on_the_twin(run, 0);
}
static void unregisters_with_the_work_of_a_group(rank_run* run) {
  deregisters_on_the_twin(run, 1);
}

static void test_memory_of_a_twin_is_deregistered_behind_the_group(void** state) {
  (void)state;
  as_two(leaves_with_the_work_of_a_group);
  as_two(unregisters_with_the_work_of_a_group);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_a_group_whose_second_call_differs_breaks_both),
      cmocka_unit_test(test_a_group_whose_second_call_never_ends_is_ended),
      cmocka_unit_test(test_memory_of_a_twin_is_deregistered_behind_the_group),
      cmocka_unit_test(test_calls_of_a_group_run_in_order_through_host_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
