/* unit/test_comm_errors.c: what goes wrong between ranks is an error that names the rank and quotes the calls, and what
 * is wrong in one call leaves the communicator usable. */
#include "support/counts.h"
#include "support/ranks.h"

static void mismatch(rank_run* run) {
  gsel_error* err;
  gsel_comm* comm;
  float x[64] = {0}, y[256];
  memset(y, 0x55, sizeof y);
  rank_ok(run, rank_join(run, &comm, &err), err);
  const int odd = run->rank == 1;
  for (int i = 0; i < 3; ++i) {
    rank_fails(
        run, gsel_allreduce(comm, x, y, odd ? 32 : 16, GSEL_F32, GSEL_SUM, &err), err, GSEL_ERR_MISMATCH,
        "rank 0 called allreduce(count 16, f32, sum), rank 1 called allreduce(count 32, f32, sum); make the calls "
        "alike on every rank",
        1);
    rank_fails(run, gsel_allreduce(comm, x, y, 16, odd ? GSEL_I32 : GSEL_F32, GSEL_SUM, &err), err, GSEL_ERR_MISMATCH,
               "rank 1 called allreduce(count 16, i32, sum)", 1);
    rank_fails(run, gsel_allreduce(comm, x, y, 16, GSEL_F32, odd ? GSEL_MAX : GSEL_AVG, &err), err, GSEL_ERR_MISMATCH,
               "f32, avg), rank 1 called allreduce(count 16, f32, max)", 1);
    rank_fails(run, gsel_broadcast(comm, x, y, 16, GSEL_F32, odd, &err), err, GSEL_ERR_MISMATCH,
               "rank 1 called broadcast(count 16, f32, root 1)", 1);
    rank_fails(run, odd ? gsel_barrier(comm, &err) : gsel_allgather(comm, x, y, 16, GSEL_F32, &err), err,
               GSEL_ERR_MISMATCH, "rank 0 called allgather(count 16, f32), rank 1 called barrier()", 1);
    for (size_t j = 0; j < 256; ++j) rank_check(run, memcmp(&y[j], "\x55\x55\x55\x55", 4) == 0);
    x[0] = 1;
    rank_ok(run, gsel_allreduce(comm, x, x, 1, GSEL_F32, GSEL_SUM, &err), err);
    rank_check(run, x[0] == (float)run->world_size);
  }
  rank_check(run, comm_counts(comm, GSEL_COLLECTIVE_ALLREDUCE).calls == 3);
  gsel_comm_free(comm);
}

static void test_different_calls_are_quoted_on_every_rank_and_nothing_is_written(void** state) {
  (void)state;
  as_threads(2, mismatch, NULL);
  as_processes(2, mismatch, NULL);
  as_threads(5, mismatch, NULL);
}

static void mismatch_small_against_large(rank_run* run) {
  gsel_error* err;
  gsel_comm* comm;
  float* x = calloc(1 << 20, sizeof *x);
  rank_ok(run, rank_join(run, &comm, &err), err);
  const size_t count = run->rank == 0 ? 1 << 20 : 4;
  rank_fails(run, gsel_allreduce(comm, x, x, count, GSEL_F32, GSEL_SUM, &err), err, GSEL_ERR_MISMATCH,
             "rank 0 called allreduce(count 1048576, f32, sum), rank 1 called allreduce(count 4, f32, sum)", 0);
  rank_ok(run, gsel_allreduce(comm, x, x, 1 << 20, GSEL_F32, GSEL_SUM, &err), err);
  free(x);
  gsel_comm_free(comm);
}

static void test_the_rank_that_differs_from_the_others_is_named(void** state) {
  (void)state;
  as_threads(3, mismatch_small_against_large, NULL);
  as_processes(4, mismatch_small_against_large, NULL);
}

static void message_mismatch(rank_run* run) {
  gsel_error* err;
  gsel_comm* comm;
  float x[64] = {0};
  rank_ok(run, rank_join(run, &comm, &err), err);
  if (run->rank == 0) rank_ok(run, gsel_send(comm, x, 32, GSEL_F32, 1, &err), err);
  if (run->rank == 1)
    rank_fails(run, gsel_recv(comm, x, 16, GSEL_F32, 0, &err), err, GSEL_ERR_MISMATCH,
               "rank 0 called send(count 32, f32, to rank 1), rank 1 called recv(count 16, f32, from rank 0)", 0);
  for (int i = 0; i < 2; ++i)
    rank_fails(run, gsel_barrier(comm, &err), err, GSEL_ERR_MISMATCH, "send(count 32, f32, to rank 1)", 0);
  gsel_comm_free(comm);
}

static void test_a_message_longer_than_its_receive_breaks_the_communicator_on_every_rank(void** state) {
  (void)state;
  as_threads(3, message_mismatch, NULL);
  as_processes(2, message_mismatch, NULL);
}

static void bad_arguments(rank_run* run) {
  gsel_error* err;
  gsel_comm* comm;
  float x[64] = {0}, y[64];
  const int32_t n = run->world_size, other = (run->rank + 1) % n;
  rank_ok(run, rank_join(run, &comm, &err), err);
  rank_fails(run, gsel_allreduce(NULL, x, y, 1, GSEL_F32, GSEL_SUM, &err), err, GSEL_ERR_ARG, "comm is NULL", -1);
  rank_fails(run, gsel_allreduce(comm, NULL, y, 1, GSEL_F32, GSEL_SUM, &err), err, GSEL_ERR_ARG, "send is NULL", -1);
  rank_fails(run, gsel_allreduce(comm, x, NULL, 1, GSEL_F32, GSEL_SUM, &err), err, GSEL_ERR_ARG, "recv is NULL", -1);
  rank_fails(run, gsel_allreduce(comm, x, y, 1, 99, GSEL_SUM, &err), err, GSEL_ERR_ARG, "dtype 99 is unknown", -1);
  rank_fails(run, gsel_allreduce(comm, x, y, 1, 0, GSEL_SUM, &err), err, GSEL_ERR_ARG, "dtype 0 is unknown", -1);
  rank_fails(run, gsel_allreduce(comm, x, y, 1, GSEL_F32, 10, &err), err, GSEL_ERR_ARG, "op 10 is unknown", -1);
  rank_fails(run, gsel_broadcast(comm, x, y, 1, GSEL_F32, n, &err), err, GSEL_ERR_ARG, "is not a rank of a world", -1);
  rank_fails(run, gsel_broadcast(comm, x, y, 1, GSEL_F32, -1, &err), err, GSEL_ERR_ARG, "root -1", -1);
  rank_fails(run, gsel_send(comm, x, 1, GSEL_F32, run->rank, &err), err, GSEL_ERR_ARG, "the calling rank itself", -1);
  rank_fails(run, gsel_recv(comm, x, 1, GSEL_F32, n + 3, &err), err, GSEL_ERR_ARG, "peer", -1);
  rank_fails(run, gsel_send(comm, NULL, 1, GSEL_F32, other, &err), err, GSEL_ERR_ARG, n > 1 ? "send is NULL" : "peer",
             -1);
  rank_fails(run, gsel_allreduce(comm, x, y, SIZE_MAX / 4, GSEL_F32, GSEL_SUM, &err), err, GSEL_ERR_ARG,
             "does not fit in memory", -1);
  rank_fails(run, gsel_allgather(comm, x, y, SIZE_MAX / 2 + 1, GSEL_I8, &err), err, GSEL_ERR_ARG, "does not fit", -1);
  rank_fails(run, gsel_allreduce(comm, x, x + 1, 8, GSEL_F32, GSEL_SUM, &err), err, GSEL_ERR_ARG, "overlap", -1);
  if (n > 1)
    rank_fails(run, gsel_allgather(comm, x + 8 * other, x, 8, GSEL_F32, &err), err, GSEL_ERR_ARG, "overlap", -1);
  rank_check(run, gsel_allreduce(comm, NULL, y, 1, GSEL_F32, GSEL_SUM, NULL) == GSEL_ERR_ARG);
  rank_ok(run, gsel_allreduce(comm, NULL, NULL, 0, GSEL_F32, GSEL_SUM, &err), err);
  rank_ok(run, gsel_allgather(comm, NULL, NULL, 0, GSEL_F32, &err), err);
  rank_ok(run, gsel_barrier(comm, &err), err);
  gsel_comm_free(comm);
}

static void test_bad_arguments_are_refused_and_the_communicator_stays_usable(void** state) {
  (void)state;
  as_threads(1, bad_arguments, NULL);
  as_threads(2, bad_arguments, NULL);
  as_threads(4, bad_arguments, NULL);
}

static void test_null_handles_are_harmless(void** state) {
  (void)state;
  assert_int_equal(gsel_comm_rank(NULL), -1);
  assert_int_equal(gsel_comm_world_size(NULL), -1);
  assert_int_equal(comm_counts(NULL, GSEL_COLLECTIVE_SEND).calls, 0);
  gsel_comm_abort(NULL, gsel_str_from("nobody"));
  gsel_comm_free(NULL);
  gsel_error* err;
  check_fails(gsel_comm_init(NULL, NULL, &err), err, GSEL_ERR_ARG, "out is NULL");
  check_fails(gsel_unique_id_create(NULL, &err), err, GSEL_ERR_ARG, "out is NULL");
}

static void test_ranks_outside_the_world_and_odd_times_are_refused(void** state) {
  (void)state;
  gsel_error* err;
  gsel_comm* comm = (gsel_comm*)state;
  gsel_unique_id id;
  check_ok(gsel_unique_id_create(&id, &err), err);
  gsel_comm_options options = GSEL_COMM_OPTIONS_INIT;
  options.id = &id;
  options.world_size = 2;
  options.rank = 2;
  check_fails(gsel_comm_init(&options, &comm, &err), err, GSEL_ERR_ARG, "rank 2 of a world of 2");
  assert_null(comm);
  options.rank = -1;
  check_fails(gsel_comm_init(&options, &comm, &err), err, GSEL_ERR_ARG, "rank -1 of a world of 2");
  options.world_size = -2;
  check_fails(gsel_comm_init(&options, &comm, &err), err, GSEL_ERR_ARG, "world of -2");
  options.world_size = 1;
  options.rank = 0;
  options.timeout_s = -1;
  check_fails(gsel_comm_init(&options, &comm, &err), err, GSEL_ERR_ARG, "timeout_s is -1");
  options.timeout_s = 0;
  options.world_size = 100000;
  check_fails(gsel_comm_init(&options, &comm, &err), err, GSEL_ERR_UNSUPPORTED, "at most 256");
  options.struct_size = 4;
  check_fails(gsel_comm_init(&options, &comm, &err), err, GSEL_ERR_VERSION, "gsel_comm_options");
}

static void* abort_later(void* comm) {
  usleep(20000);
  gsel_comm_abort((gsel_comm*)comm, gsel_str_from("stopped by hand"));
  return NULL;
}

/* Rank 1 never calls; its other thread aborts while the others wait. */
static void aborted(rank_run* run) {
  gsel_error* err;
  gsel_comm* comm;
  float x = 0;
  rank_ok(run, rank_join(run, &comm, &err), err);
  if (run->rank == 1) {
    pthread_t thread;
    rank_check(run, pthread_create(&thread, NULL, abort_later, comm) == 0);
    pthread_join(thread, NULL);
  }
  for (int i = 0; i < 2; ++i)
    rank_fails(run, gsel_allreduce(comm, &x, &x, 1, GSEL_F32, GSEL_SUM, &err), err, GSEL_ERR_ABORTED,
               "rank 1 aborted the communicator: stopped by hand", 1);
  gsel_comm_free(comm);
}

static void test_abort_from_another_thread_ends_calls_under_way_and_later_ones(void** state) {
  (void)state;
  as_threads(3, aborted, NULL);
  as_processes(2, aborted, NULL);
}

static void aborted_alone(rank_run* run) {
  gsel_error* err;
  gsel_comm* comm;
  char long_reason[400];
  memset(long_reason, 'x', sizeof long_reason);
  const gsel_str reason = {long_reason, sizeof long_reason};
  rank_ok(run, rank_join(run, &comm, &err), err);
  gsel_comm_abort(comm, reason);
  rank_fails(run, gsel_barrier(comm, &err), err, GSEL_ERR_ABORTED, "xxx", 0);
  gsel_comm_free(comm);
}

static void test_a_world_of_one_can_be_aborted(void** state) {
  (void)state;
  as_threads(1, aborted_alone, NULL);
}

/* Rank 1 leaves after a call; what it had posted still counts, the next call names it. */
static void departed(rank_run* run) {
  gsel_error* err;
  gsel_comm* comm;
  int32_t x = 1;
  float y[100] = {0};
  rank_ok(run, rank_join(run, &comm, &err), err);
  rank_ok(run, gsel_allreduce(comm, &x, &x, 1, GSEL_I32, GSEL_SUM, &err), err);
  rank_check(run, x == run->world_size);
  if (run->rank == 1) rank_ok(run, gsel_send(comm, y, 100, GSEL_F32, 0, &err), err);
  if (run->rank != 1) {
    if (run->rank == 0) rank_ok(run, gsel_recv(comm, y, 100, GSEL_F32, 1, &err), err);
    rank_fails(run, gsel_barrier(comm, &err), err, GSEL_ERR_PEER, "left while rank", 1);
    rank_fails(run, gsel_barrier(comm, &err), err, GSEL_ERR_PEER, "left while rank", 1);
  }
  gsel_comm_free(comm);
}

static void test_a_rank_that_left_is_named_but_what_it_posted_counts(void** state) {
  (void)state;
  as_threads(2, departed, NULL);
  as_threads(4, departed, NULL);
  as_processes(3, departed, NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_different_calls_are_quoted_on_every_rank_and_nothing_is_written),
      cmocka_unit_test(test_the_rank_that_differs_from_the_others_is_named),
      cmocka_unit_test(test_a_message_longer_than_its_receive_breaks_the_communicator_on_every_rank),
      cmocka_unit_test(test_bad_arguments_are_refused_and_the_communicator_stays_usable),
      cmocka_unit_test(test_null_handles_are_harmless),
      cmocka_unit_test(test_ranks_outside_the_world_and_odd_times_are_refused),
      cmocka_unit_test(test_abort_from_another_thread_ends_calls_under_way_and_later_ones),
      cmocka_unit_test(test_a_world_of_one_can_be_aborted),
      cmocka_unit_test(test_a_rank_that_left_is_named_but_what_it_posted_counts),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
