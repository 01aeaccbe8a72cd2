/* unit/test_comm_groups.c: calls made together by gsel_group_run: several of one communicator, several communicators,
 * all ranks of one thread; whichever thread makes them. */
#include "support/calls.h"
#include "support/groups.h"

enum { LARGE = 1 << 18, MOST_RANKS = 4 };

static gsel_collective barrier(void) {
  return call_of(GSEL_COLLECTIVE_BARRIER, NULL, NULL, 0, -1);
}

/* A ring in which everybody sends first, with collectives between, and a second communicator in the other order. */
static void ring_in_a_group(rank_run* run) {
  gsel_error* err;
  gsel_comm* comm[2];
  call_group group = {0};
  const int32_t n = run->world_size, to = (run->rank + 1) % n, from = (run->rank + n - 1) % n;
  int32_t *x = filled(LARGE, run->rank), *y = filled(LARGE, -1), *z = filled(LARGE, 1), other[2];
  rank_ok(run, rank_join(run, &comm[0], &err), err);
  rank_ok(run, gsel_comm_dup(comm[0], &comm[1], &err), err);
  for (int rounds = 0; rounds < 10; ++rounds) {
    for (int i = 0; i < LARGE; ++i) y[i] = -1, z[i] = 1;
    other[0] = 1, other[1] = 2;
    for (int k = 0; k < 2; ++k) {
      if (k == run->rank % 2) {
        group_add(&group, comm[0], call_of(GSEL_COLLECTIVE_SEND, x, NULL, LARGE, to));
        group_add(&group, comm[0], sum_of(z, LARGE));
        group_add(&group, comm[0], call_of(GSEL_COLLECTIVE_RECV, NULL, y, LARGE, from));
        group_add(&group, comm[0], barrier());
      } else {
        for (int i = 0; i < 2; ++i) group_add(&group, comm[1], sum_of(&other[i], 1));
      }
    }
    rank_ok(run, group_run(&group, &err), err);
    rank_check(run, all_are(y, LARGE, from) && all_are(z, LARGE, n) && other[0] == n && other[1] == 2 * n);
  }
  free(x), free(y), free(z);
  gsel_comm_free(comm[1]);
  gsel_comm_free(comm[0]);
}

static void test_calls_of_a_group_run_together(void** state) {
  (void)state;
  as_threads_and_processes(2, ring_in_a_group, NULL);
  as_threads_and_processes(3, ring_in_a_group, NULL);
}

/* Nothing of a group happens where one of its calls cannot be made. */
static void refused(rank_run* run) {
  gsel_error* err;
  gsel_comm* comm;
  call_group group = {0};
  int32_t x = 1;
  rank_ok(run, rank_join(run, &comm, &err), err);
  group_add(&group, comm, sum_of(&x, 1));
  group_add(&group, comm, call_of(GSEL_COLLECTIVE_SEND, &x, NULL, 1, run->world_size));
  rank_fails(run, group_run(&group, &err), err, GSEL_ERR_ARG, "call 1 of a group of 2: send: peer 2 is not a rank", -1);
  group_add(&group, comm, sum_of(&x, 1));
  group_add(&group, NULL, sum_of(&x, 1));
  rank_fails(run, group_run(&group, &err), err, GSEL_ERR_ARG, "comms[1] is NULL in a group of 2", -1);
  const gsel_collective* const none[] = {NULL};
  rank_fails(run, gsel_group_run(&comm, none, 1, &err), err, GSEL_ERR_ARG, "calls[0] is NULL in a group of 1", -1);
  rank_fails(run, gsel_group_run(NULL, none, 1, &err), err, GSEL_ERR_ARG, "comms is NULL", -1);
  rank_fails(run, gsel_group_run(&comm, NULL, 1, &err), err, GSEL_ERR_ARG, "calls is NULL", -1);
  rank_ok(run, gsel_group_run(NULL, NULL, 0, &err), err);
  rank_check(run, x == 1);
  rank_ok(run, gsel_allreduce(comm, &x, &x, 1, GSEL_I32, GSEL_SUM, &err), err);
  rank_check(run, x == 2);
  gsel_comm_free(comm);
}

static void test_a_group_with_a_wrong_call_does_nothing(void** state) {
  (void)state;
  as_threads_and_processes(2, refused, NULL);
}

/* What is called between is made at once: no group is open on a thread. */
static void test_no_call_depends_on_the_thread_that_makes_it(void** state) {
  (void)state;
  gsel_error* err;
  gsel_comm* comm;
  call_group group = {0};
  int32_t x = 1, y = 0;
  gsel_comm_options options = GSEL_COMM_OPTIONS_INIT;
  options.world_size = 1;
  check_ok(gsel_comm_init(&options, &comm, &err), err);
  group_add(&group, comm, call_of(GSEL_COLLECTIVE_ALLREDUCE, &x, &y, 1, -1));
  x = 5;
  check_ok(gsel_allreduce(comm, &x, &y, 1, GSEL_I32, GSEL_SUM, &err), err);
  assert_int_equal(y, 5);
  x = 6;
  check_ok(group_run(&group, &err), err);
  assert_int_equal(y, 6);
  gsel_comm_free(comm);
}

static gsel_comm* held[MOST_RANKS]; /* by one thread, once its ranks have joined */

static void joins_for_another(rank_run* run) {
  gsel_error* err;
  rank_ok(run, rank_join(run, &held[run->rank], &err), err);
}

static void test_one_thread_holds_all_ranks(void** state) {
  (void)state;
  gsel_error* err;
  call_group group = {0};
  int32_t *x[MOST_RANKS], *y[MOST_RANKS];
  as_threads(MOST_RANKS, joins_for_another, NULL);
  for (int r = 0; r < MOST_RANKS; ++r) x[r] = filled(LARGE, r), y[r] = filled(LARGE, -1);
  for (int rounds = 0; rounds < 10; ++rounds) {
    int32_t one[MOST_RANKS] = {1, 1, 1, 1};
    for (int r = 0; r < MOST_RANKS; ++r) {
      gsel_collective ring = call_of(GSEL_COLLECTIVE_SENDRECV, x[r], y[r], LARGE, (r + 1) % MOST_RANKS);
      ring.recv_count = LARGE;
      ring.source = (r + 3) % MOST_RANKS;
      group_add(&group, held[r], ring);
      group_add(&group, held[r], sum_of(&one[r], 1));
    }
    check_ok(group_run(&group, &err), err);
    for (int r = 0; r < MOST_RANKS; ++r) assert_true(one[r] == 4 && all_are(y[r], LARGE, (r + 3) % MOST_RANKS));
  }
  for (int r = 0; r < MOST_RANKS; ++r) {
    group_add(&group, held[r], barrier());
    group_add(&group, held[r], sum_of(x[r], r == 2 ? 2 : 1));
  }
  check_fails(group_run(&group, &err), err, GSEL_ERR_MISMATCH,
              "rank 2 called allreduce(count 2, i32, sum) in a group;");
  for (int r = 0; r < MOST_RANKS; ++r) group_add(&group, held[r], barrier());
  check_ok(group_run(&group, &err), err);
  for (int r = 0; r < MOST_RANKS; ++r) {
    gsel_comm_free(held[r]);
    free(x[r]), free(y[r]);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_calls_of_a_group_run_together),
      cmocka_unit_test(test_a_group_with_a_wrong_call_does_nothing),
      cmocka_unit_test(test_no_call_depends_on_the_thread_that_makes_it),
      cmocka_unit_test(test_one_thread_holds_all_ranks),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
