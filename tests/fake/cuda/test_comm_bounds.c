/* fake/cuda/test_comm_bounds.c: what NCCL would wait for without an end is an error within the timeout, or told at
 * once: messages that nobody takes, calls that do not pair, and two communicators in opposite order. */
#include "fake/cuda/joined.h"

/* ---- messages -----------------------------------------------------------------------------------------------------
 */

/* What rank 0 gets for a message of which rank 1 has no other side. */
static void expect_end_of_message(rank_run* run, const joined* j, int sends, gsel_status code, const char* part) {
  gsel_error* err = NULL;
  const double began = seconds();
  const gsel_status status = sends ? gsel_send(j->comm, j->memory, COUNT, GSEL_F32, 1, &err)
                                   : gsel_recv(j->comm, j->memory, COUNT, GSEL_F32, 1, &err);
  expect_end(run, j, began, status, &err, code, part);
}

static void alone_in_a_message(rank_run* run, int sends) {
  joined j;
  rank_check(run, join_over(run, "nccl", 0, &j) == GSEL_OK);
  rank_check(run, connect_ranks(&j) == GSEL_OK);
  if (run->rank == 0) expect_end_of_message(run, &j, sends, GSEL_ERR_TIMEOUT, "timed out");
  meet(run, 2);
  gsel_comm_free(j.comm);
}

static void nobody_sends(rank_run* run) {
  alone_in_a_message(run, 0);
}
static void nobody_takes(rank_run* run) {
  alone_in_a_message(run, 1);
}

static void both_receive_first(rank_run* run) {
  joined j;
  gsel_error* err = NULL;
  rank_check(run, join_over(run, "nccl", 0, &j) == GSEL_OK);
  rank_check(run, connect_ranks(&j) == GSEL_OK);
  const double began = seconds();
  gsel_status status = gsel_recv(j.comm, j.memory, COUNT, GSEL_F32, 1 - run->rank, &err);
  if (status == GSEL_OK) status = gsel_send(j.comm, j.memory, COUNT, GSEL_F32, 1 - run->rank, &err);
  expect_end(run, &j, began, status, &err, GSEL_ERR_TIMEOUT, "");
  meet(run, 2);
  gsel_comm_free(j.comm);
}

/* Rank 1 leaves, and never sends or takes the message of rank 0. */
static void other_side_leaves(rank_run* run, int sends) {
  joined j;
  rank_check(run, join_over(run, "nccl", 0, &j) == GSEL_OK);
  rank_check(run, connect_ranks(&j) == GSEL_OK);
  if (run->rank == 0)
    expect_end_of_message(run, &j, sends, GSEL_ERR_PEER,
                          sends ? "waited for it in send(count 16, f32, to rank 1)"
                                : "waited for it in recv(count 16, f32, from rank 1)");
  gsel_comm_free(j.comm);
  meet(run, 2);
}

static void receives_from_who_leaves(rank_run* run) {
  other_side_leaves(run, 0);
}
static void sends_to_who_leaves(rank_run* run) {
  other_side_leaves(run, 1);
}

static void test_a_message_whose_other_side_has_left_names_it(void** state) {
  (void)state;
  as_two(receives_from_who_leaves);
  as_two(sends_to_who_leaves);
}

static void test_messages_without_their_other_side_end(void** state) {
  (void)state;
  as_two(nobody_sends);
  as_two(nobody_takes);
  as_two(both_receive_first);
}

static void another_type(rank_run* run) {
  joined j;
  gsel_error* err = NULL;
  rank_check(run, join_over(run, "nccl", 0, &j) == GSEL_OK);
  rank_check(run, connect_ranks(&j) == GSEL_OK);
  const double began = seconds();
  const gsel_status status = run->rank ? gsel_send(j.comm, j.memory, COUNT, GSEL_F32, 0, &err)
                                       : gsel_recv(j.comm, j.memory, COUNT, GSEL_I32, 1, &err);
  expect_end(run, &j, began, status, &err, GSEL_ERR_MISMATCH, "i32");
  meet(run, 2);
  gsel_comm_free(j.comm);
}

/* gsel/comm.h allows a receive that is longer than its message, NCCL does not. */
static void another_count(rank_run* run) {
  joined j;
  gsel_error* err = NULL;
  rank_check(run, join_over(run, "nccl", 0, &j) == GSEL_OK);
  rank_check(run, connect_ranks(&j) == GSEL_OK);
  const double began = seconds();
  const gsel_status status = run->rank ? gsel_send(j.comm, j.memory, 4, GSEL_F32, 0, &err)
                                       : gsel_recv(j.comm, j.memory, COUNT, GSEL_F32, 1, &err);
  expect_end(run, &j, began, status, &err, GSEL_ERR_MISMATCH, "with 4 of f32");
  meet(run, 2);
  gsel_comm_free(j.comm);
}

static void test_a_receive_of_another_type_or_count_is_a_mismatch(void** state) {
  (void)state;
  as_two(another_type);
  as_two(another_count);
}

/* ---- collectives --------------------------------------------------------------------------------------------------
 */

static void counts_that_do_not_pair(rank_run* run) {
  joined j;
  gsel_error* err = NULL;
  rank_check(run, join_over(run, "nccl", 0, &j) == GSEL_OK);
  rank_check(run, connect_ranks(&j) == GSEL_OK);
  void* out;
  rank_ok(run, gsel_mem_alloc(j.comm, 256, &out, &err), err);
  const uint64_t sends[] = {4, run->rank == 0 ? 8 : 4}, receives[] = {4, 4};
  {
    const double began = seconds();
    const gsel_status status = gsel_alltoallv(j.comm, j.memory, sends, NULL, out, receives, NULL, GSEL_F32, &err);
    expect_end(run, &j, began, status, &err, GSEL_ERR_MISMATCH, "");
  }
  meet(run, 2);
  gsel_comm_free(j.comm);
}

static void one_through_host(rank_run* run) {
  joined j;
  gsel_error* err = NULL;
  rank_check(run, join_over(run, "nccl", 0, &j) == GSEL_OK);
  rank_check(run, connect_ranks(&j) == GSEL_OK);
  {
    const double began = seconds();
    const gsel_status status =
        gsel_allreduce(j.comm, j.memory, j.memory, 8, run->rank ? GSEL_I16 : GSEL_F32, GSEL_SUM, &err);
    expect_end(run, &j, began, status, &err, GSEL_ERR_MISMATCH, "i16");
  }
  meet(run, 2);
  gsel_comm_free(j.comm);
}

static void test_calls_that_do_not_pair_are_a_mismatch(void** state) {
  (void)state;
  as_two(counts_that_do_not_pair);
  as_two(one_through_host);
}

static void opposite_order(rank_run* run) {
  joined j, twin;
  gsel_error* err = NULL;
  rank_check(run, join_over(run, "nccl", 0, &j) == GSEL_OK);
  twin = j;
  rank_ok(run, gsel_comm_dup(j.comm, &twin.comm, &err), err);
  cuda.push(j.g.context);
  cuda.create(&twin.g.stream, 1, 0);
  cuda.pop(&(void*){NULL});
  rank_ok(run, gsel_comm_set_stream(twin.comm, twin.g.stream, &err), err);
  rank_ok(run, gsel_mem_alloc(twin.comm, COUNT * sizeof(float), (void**)&twin.memory, &err), err);
  rank_check(run, connect_ranks(&j) == GSEL_OK && connect_ranks(&twin) == GSEL_OK);
  const joined* order[] = {run->rank ? &twin : &j, run->rank ? &j : &twin};
  const double began = seconds();
  gsel_status status[2] = {GSEL_OK, GSEL_OK};
  for (int i = 0; i < 2; ++i)
    status[i] = gsel_allreduce(order[i]->comm, order[i]->memory, order[i]->memory, COUNT, GSEL_F32, GSEL_SUM, NULL);
  for (int i = 0; i < 2; ++i)
    if (status[i] == GSEL_OK) status[i] = gsel_comm_synchronize(order[i]->comm, NULL);
  /* One of them is broken, and lets the other one go. */
  rank_check(run, status[0] == GSEL_ERR_TIMEOUT || status[1] == GSEL_ERR_TIMEOUT);
  rank_check(run, seconds() - began < 10);
  meet(run, 2);
  gsel_comm_free(twin.comm);
  gsel_comm_free(j.comm);
}

static void test_two_communicators_in_opposite_order_end(void** state) {
  (void)state;
  as_two(opposite_order);
}

/* ---- requests, and nobody who watches
 * ------------------------------------------------------------------------------------------
 */

static void a_request_that_nobody_answers(rank_run* run) {
  joined j;
  gsel_error* err = NULL;
  rank_check(run, join_over(run, "host", 0, &j) == GSEL_OK);
  if (run->rank == 0) {
    gsel_collective call = GSEL_COLLECTIVE_INIT;
    call.kind = GSEL_COLLECTIVE_RECV;
    call.dtype = GSEL_F32;
    call.recv = j.memory;
    call.count = COUNT;
    call.root = 1;
    gsel_request* request = NULL;
    rank_ok(run, gsel_comm_start(j.comm, &call, &request, &err), err); /* does not wait for the message */
    meet(run, 2);
    rank_ok(run, gsel_request_wait(request, &err), err);
    gsel_request_free(request);
    rank_check(run, element_5(&j, j.memory) == 105);
  } else {
    meet(run, 2);
    rank_ok(run, gsel_send(j.comm, j.memory, COUNT, GSEL_F32, 0, &err), err);
  }
  gsel_comm_free(j.comm);
}

/* Over nccl, where the other rank makes the call once this one has its request. */
static void a_request_ahead_of_the_other_rank(rank_run* run) {
  joined j;
  gsel_error* err = NULL;
  rank_check(run, join_over(run, "nccl", 0, &j) == GSEL_OK);
  rank_check(run, connect_ranks(&j) == GSEL_OK);
  gsel_collective call = GSEL_COLLECTIVE_INIT;
  call.kind = GSEL_COLLECTIVE_ALLREDUCE;
  call.dtype = GSEL_F32;
  call.op = GSEL_SUM;
  call.send = call.recv = j.memory;
  call.count = COUNT;
  gsel_request* request = NULL;
  if (run->rank == 1) meet(run, 2);
  rank_ok(run, gsel_comm_start(j.comm, &call, &request, &err), err);
  if (run->rank == 0) meet(run, 2);
  rank_ok(run, gsel_request_wait(request, &err), err);
  gsel_request_free(request);
  rank_check(run, element_5(&j, j.memory) == 110);
  gsel_comm_free(j.comm);
}

static void test_a_request_starts_without_the_other_rank(void** state) {
  (void)state;
  as_two(a_request_that_nobody_answers);
  as_two(a_request_ahead_of_the_other_rank);
}

/* Nobody watches, and the first call of the survivor waits for the host of the dead. */
static void dies_unwatched(rank_run* run) {
  joined j;
  gsel_error* err = NULL;
  rank_check(run, join_over(run, "nccl", GSEL_COMM_NO_THREAD, &j) == GSEL_OK);
  meet(run, 2);
  if (run->rank == 1) raise(SIGKILL);
  {
    const double began = seconds();
    const gsel_status status = gsel_allreduce(j.comm, j.memory, j.memory, COUNT, GSEL_F32, GSEL_SUM, &err);
    expect_end(run, &j, began, status, &err, GSEL_ERR_PEER, "rank 1 (pid");
  }
  gsel_comm_free(j.comm);
}

/* The same behind a call of NCCL that the dead rank has announced and never makes: a call through host memory waits for
 * the stream. */
static void dies_before_the_way_through_host(rank_run* run) {
  joined j;
  gsel_error* err = NULL;
  rank_check(run, join_over(run, "nccl", GSEL_COMM_NO_THREAD, &j) == GSEL_OK);
  rank_check(run, connect_ranks(&j) == GSEL_OK);
  if (run->rank == 0) rank_ok(run, gsel_allreduce(j.comm, j.memory, j.memory, COUNT, GSEL_F32, GSEL_SUM, &err), err);
  meet(run, 2);
  if (run->rank == 1) raise(SIGKILL);
  {
    const double began = seconds();
    const gsel_status status = gsel_allreduce(j.comm, j.memory, j.memory, 8, GSEL_I16, GSEL_SUM, &err);
    expect_end(run, &j, began, status, &err, GSEL_ERR_PEER, "rank 1 (pid");
  }
  gsel_comm_free(j.comm);
}

static void survives_alone(rank_body body) {
  int32_t* word = shared_memory(sizeof *word);
  rank_run* runs = ranks_prepare(2, word);
  const pid_t survivor = rank_fork(&runs[0], body), victim = rank_fork(&runs[1], body);
  int status = 0;
  waitpid(victim, &status, 0);
  waitpid(survivor, &status, 0);
  if (status != 0) fail_msg("the survivor ended with wait status 0x%x", (unsigned)status);
  ranks_verdict(runs, 2);
  munmap(word, sizeof *word);
}

static void test_a_death_without_a_watching_thread_ends_a_call(void** state) {
  (void)state;
  survives_alone(dies_unwatched);
  survives_alone(dies_before_the_way_through_host);
}

/* ---- streams that do not come to a call -----------------------------------------------------------------------------
 */

/* What comes before the call on its stream waits for the other rank, with a longer timeout. */
static void waits_for_its_stream(rank_run* run) {
  joined j;
  gsel_comm* other = NULL;
  gsel_error* err = NULL;
  rank_check(run, join_over(run, "nccl", 0, &j) == GSEL_OK);
  rank_ok(run, gsel_comm_dup(j.comm, &other, &err), err);
  rank_ok(run, gsel_comm_set_stream(other, j.g.stream, &err), err);
  rank_ok(run, gsel_comm_set_timeout(j.comm, 60, &err), err);
  rank_check(run, connect_ranks(&j) == GSEL_OK);
  if (run->rank == 0) rank_ok(run, gsel_allreduce(j.comm, j.memory, j.memory, COUNT, GSEL_F32, GSEL_SUM, &err), err);
  if (run->rank == 1) meet(run, 2);
  {
    const double began = seconds();
    const gsel_status status = gsel_allreduce(other, j.memory, j.memory, 8, GSEL_I16, GSEL_SUM, &err);
    expect_end(run, &j, began, status, &err, GSEL_ERR_TIMEOUT,
               "(count 8, i16, sum) of rank 0 did not begin within 2 s, since what its stream has to do before it on "
               "cuda:0 has not ended");
  }
  err = NULL;
  if (run->rank == 0) meet(run, 2);
  if (run->rank == 1) rank_ok(run, gsel_allreduce(j.comm, j.memory, j.memory, COUNT, GSEL_F32, GSEL_SUM, &err), err);
  rank_ok(run, gsel_comm_synchronize(j.comm, &err), err);
  rank_check(run, element_5(&j, j.memory) == 110);
  gsel_comm_free(other);
  gsel_comm_free(j.comm);
}

static void test_a_stream_that_does_not_come_to_a_call_through_host_memory(void** state) {
  (void)state;
  as_two(waits_for_its_stream);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_messages_without_their_other_side_end),
      cmocka_unit_test(test_a_message_whose_other_side_has_left_names_it),
      cmocka_unit_test(test_a_receive_of_another_type_or_count_is_a_mismatch),
      cmocka_unit_test(test_calls_that_do_not_pair_are_a_mismatch),
      cmocka_unit_test(test_two_communicators_in_opposite_order_end),
      cmocka_unit_test(test_a_request_starts_without_the_other_rank),
      cmocka_unit_test(test_a_death_without_a_watching_thread_ends_a_call),
      cmocka_unit_test(test_a_stream_that_does_not_come_to_a_call_through_host_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
