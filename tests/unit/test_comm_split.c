/* unit/test_comm_split.c: communicators from communicators: who is in which, in what order, and that each works while
 * the others do. */
#include "support/counts.h"
#include "support/ranks.h"
#include "support/traces.h"

#define LARGE 200000

/* The ranks of comm, by their numbers in the first communicator, in order; [size]. */
static gsel_status members_of(gsel_comm* comm, int32_t number, int32_t* members, gsel_error** err) {
  return gsel_allgather(comm, &number, members, 1, GSEL_I32, err);
}

/* Small and large calls and messages, on numbers of the first communicator. */
static int works(gsel_comm* comm, int32_t number, gsel_error** err) {
  const int32_t n = gsel_comm_world_size(comm), rank = gsel_comm_rank(comm);
  int32_t members[RANKS_MAX], small = number, sum = 0, got = -1, root = rank == n - 1 ? number : -1;
  if (members_of(comm, number, members, err) != GSEL_OK || members[rank] != number) return 0;
  for (int32_t q = 0; q < n; ++q) sum += members[q];
  if (gsel_allreduce(comm, &small, &small, 1, GSEL_I32, GSEL_SUM, err) != GSEL_OK || small != sum) return 0;
  if (gsel_broadcast(comm, &root, &root, 1, GSEL_I32, n - 1, err) != GSEL_OK || root != members[n - 1]) return 0;
  int32_t* large = malloc(LARGE * sizeof *large);
  for (int32_t i = 0; i < LARGE; ++i) large[i] = number * (i % 10);
  int right = gsel_allreduce(comm, large, large, LARGE, GSEL_I32, GSEL_SUM, err) == GSEL_OK;
  for (int32_t i = 0; right && i < LARGE; ++i) right = large[i] == sum * (i % 10);
  free(large);
  if (n > 1 && rank == 0) right = right && gsel_send(comm, &number, 1, GSEL_I32, n - 1, err) == GSEL_OK;
  if (n > 1 && rank == n - 1)
    right = right && gsel_recv(comm, &got, 1, GSEL_I32, 0, err) == GSEL_OK && got == members[0];
  return right;
}

/* Odd and even ranks, in turned order; rank 2 stays out of the third. */
static void splits_by_colour_and_key(rank_run* run) {
  const int32_t n = run->world_size, me = run->rank;
  int32_t members[RANKS_MAX];
  gsel_error* err = NULL;
  gsel_comm *comm, *parity, *turned, *without;
  rank_ok(run, rank_join(run, &comm, &err), err);
  rank_ok(run, gsel_comm_split(comm, me % 2, 0, &parity, &err), err);
  rank_check(run, gsel_comm_world_size(parity) == (n + 1 - me % 2) / 2 && gsel_comm_rank(parity) == me / 2);
  rank_ok(run, members_of(parity, me, members, &err), err);
  for (int32_t q = 0; q < gsel_comm_world_size(parity); ++q) rank_check(run, members[q] == 2 * q + me % 2);
  rank_ok(run, gsel_comm_split(comm, 5, -me, &turned, &err), err);
  rank_check(run, gsel_comm_world_size(turned) == n && gsel_comm_rank(turned) == n - 1 - me);
  rank_ok(run, gsel_comm_split(comm, me == 2 ? -1 : 0, 7, &without, &err), err);
  rank_check(run, (without == NULL) == (me == 2));
  for (int round = 0; round < 3; ++round) {
    rank_check(run, works(turned, me, &err));
    if (without) rank_check(run, works(without, me, &err));
    rank_check(run, works(parity, me, &err));
    rank_check(run, works(comm, me, &err));
  }
  gsel_comm_free(comm); /* those made from it go on */
  rank_check(run, works(parity, me, &err));
  if (without) rank_check(run, works(without, me, &err));
  gsel_comm_free(parity);
  rank_check(run, works(turned, me, &err));
  gsel_comm_free(turned);
  gsel_comm_free(without);
}

static void test_a_split_goes_by_colour_then_key_then_rank(void** state) {
  (void)state;
  for (int32_t n = 1; n <= 5; ++n) {
    as_processes(n, splits_by_colour_and_key, NULL);
    as_threads(n, splits_by_colour_and_key, NULL);
  }
}

/* Halves of halves, down to one rank, all alive at once. */
static void splits_again(rank_run* run) {
  gsel_error* err = NULL;
  gsel_comm* level[8] = {NULL};
  int depth = 0;
  rank_ok(run, rank_join(run, &level[0], &err), err);
  while (gsel_comm_world_size(level[depth]) > 1) {
    const int32_t half = gsel_comm_world_size(level[depth]) / 2;
    rank_ok(run, gsel_comm_split(level[depth], gsel_comm_rank(level[depth]) < half, 0, &level[depth + 1], &err), err);
    ++depth;
  }
  for (int i = depth; i >= 0; --i) rank_check(run, works(level[i], run->rank, &err));
  for (int i = 0; i <= depth; ++i) {
    rank_check(run, works(level[i], run->rank, &err));
    gsel_comm_free(level[i]);
  }
}

static void test_a_split_can_be_split(void** state) {
  (void)state;
  as_processes(7, splits_again, NULL);
  as_threads(8, splits_again, NULL);
}

/* Each own arena must have its own channels, staging and lines: calls on several at once must not meet. */
static void duplicates(rank_run* run) {
  gsel_error* err = NULL;
  gsel_comm *comm, *copies[6], *none;
  int32_t x[6], y = 1;
  rank_ok(run, rank_join(run, &comm, &err), err);
  for (int i = 0; i < 6; ++i) rank_ok(run, gsel_comm_dup(i % 2 ? copies[i - 1] : comm, &copies[i], &err), err);
  if (run->world_size > 1) { /* sent on each before any is received, and received in the other order */
    for (int i = 0; i < 6; ++i) x[i] = 10 * run->rank + i;
    for (int i = 0; run->rank == 0 && i < 6; ++i) rank_ok(run, gsel_send(copies[i], &x[i], 1, GSEL_I32, 1, &err), err);
    for (int i = 6; run->rank == 1 && i-- > 0;) {
      rank_ok(run, gsel_recv(copies[i], &x[i], 1, GSEL_I32, 0, &err), err);
      rank_check(run, x[i] == i);
    }
  }
  for (int i = 0; i < 6; ++i) {
    rank_check(run, gsel_comm_rank(copies[i]) == run->rank && gsel_comm_world_size(copies[i]) == run->world_size);
    rank_check(run, works(copies[i], run->rank, &err));
  }
  /* one broken, the others whole */
  rank_ok(run, gsel_barrier(comm, &err), err);
  if (run->rank == 0) gsel_comm_abort(copies[3], gsel_str_from("enough"));
  rank_ok(run, gsel_barrier(comm, &err), err);
  rank_fails(run, gsel_allreduce(copies[3], &y, &y, 1, GSEL_I32, GSEL_SUM, &err), err, GSEL_ERR_ABORTED, "enough", 0);
  rank_fails(run, gsel_comm_dup(copies[3], &none, &err), err, GSEL_ERR_ABORTED, "enough", 0);
  rank_check(run, none == NULL);
  for (int i = 0; i < 6; ++i) {
    if (i != 3) rank_check(run, works(copies[i], run->rank, &err));
    gsel_comm_free(copies[i]);
  }
  rank_check(run, comm_counts(comm, GSEL_COLLECTIVE_ALLGATHER).calls == 0); /* splitting is no call */
  gsel_comm_free(comm);
}

static void test_duplicates_do_not_meet(void** state) {
  (void)state;
  as_processes(1, duplicates, NULL);
  as_processes(3, duplicates, NULL);
  as_threads(2, duplicates, NULL);
}

static void disagrees(rank_run* run) {
  gsel_error* err = NULL;
  gsel_comm *comm, *other;
  int64_t x = 1, all[RANKS_MAX];
  rank_ok(run, rank_join(run, &comm, &err), err);
  if (run->rank == 1)
    rank_fails(run, gsel_allgather(comm, &x, all, 8, GSEL_U8, &err), err, GSEL_ERR_MISMATCH,
               "rank 0 called gsel_comm_split(), rank 1 called allgather(count 8, u8);", 1);
  else
    rank_fails(run, gsel_comm_split(comm, 0, 0, &other, &err), err, GSEL_ERR_MISMATCH,
               "rank 0 called gsel_comm_split(), rank 1 called allgather(count 8, u8);", 1);
  rank_check(run, works(comm, run->rank, &err));
  rank_fails(run, run->rank == 1 ? gsel_comm_dup(comm, &other, &err) : gsel_comm_split(comm, 0, 0, &other, &err), err,
             GSEL_ERR_MISMATCH, "rank 0 called gsel_comm_split(), rank 1 called gsel_comm_dup();", 1);
  rank_check(run, other == NULL);
  rank_check(run, works(comm, run->rank, &err)); /* a mismatch harms nothing */
  rank_fails(run, gsel_comm_split(comm, 0, 0, NULL, &err), err, GSEL_ERR_ARG, "out is NULL", -1);
  rank_fails(run, gsel_comm_split(NULL, 0, 0, &other, &err), err, GSEL_ERR_ARG, "comm is NULL", -1);
  rank_fails(run, gsel_comm_set_timeout(comm, 0, &err), err, GSEL_ERR_ARG, "0 seconds; use a positive time", -1);
  rank_ok(run, gsel_comm_dup(comm, &other, &err), err);
  rank_ok(run, gsel_comm_set_timeout(other, 0.05, &err), err);
  if (run->rank == 0) rank_fails(run, gsel_barrier(other, &err), err, GSEL_ERR_TIMEOUT, "waited 0.05 s", -1);
  rank_ok(run, gsel_barrier(comm, &err), err);
  gsel_comm_free(other);
  gsel_comm_free(comm);
}

static void test_a_split_against_another_call_is_a_mismatch(void** state) {
  (void)state;
  as_processes(2, disagrees, NULL);
  as_threads(3, disagrees, NULL);
}

/* Ranks 0 and 1 grow by those behind them. */
static void grows(rank_run* run) {
  const gsel_unique_id* fresh = run->user;
  gsel_error* err = NULL;
  gsel_comm *small = NULL, *large;
  gsel_comm_options options;
  gsel_comm_options_init(&options, sizeof options);
  options.id = fresh;
  options.rank = run->rank;
  options.world_size = run->world_size;
  if (run->rank < 2) {
    rank_run part = *run;
    part.world_size = 2;
    rank_ok(run, rank_join(&part, &small, &err), err);
    options.rank = 77; /* is ignored */
    rank_ok(run, gsel_comm_grow(small, &options, &large, &err), err);
  } else {
    rank_ok(run, gsel_comm_init(&options, &large, &err), err);
  }
  rank_check(run, gsel_comm_rank(large) == run->rank && gsel_comm_world_size(large) == run->world_size);
  rank_check(run, works(large, run->rank, &err));
  if (small) rank_check(run, works(small, run->rank, &err));
  gsel_comm_free(small);
  rank_check(run, works(large, run->rank, &err));
  gsel_comm_free(large);
}

static void test_a_communicator_grows_by_newcomers(void** state) {
  (void)state;
  for (int32_t n = 2; n <= 4; ++n) {
    gsel_unique_id fresh;
    assert_int_equal(gsel_unique_id_create(&fresh, NULL), GSEL_OK);
    as_processes(n, grows, &fresh);
    assert_int_equal(gsel_unique_id_create(&fresh, NULL), GSEL_OK);
    as_threads(n, grows, &fresh);
  }
}

/* Ranks 0 and 1 are one communicator, in which they stand in reverse, and the others one of their own. */
static void merges(rank_run* run) {
  const gsel_unique_id* ids = run->user;
  const int is_high = run->rank >= 2;
  gsel_error* err = NULL;
  gsel_comm *small, *large;
  gsel_comm_options options;
  rank_run part = *run;
  part.id = ids[is_high];
  part.rank = is_high ? run->rank - 2 : 1 - run->rank;
  part.world_size = is_high ? run->world_size - 2 : 2;
  rank_ok(run, rank_join(&part, &small, &err), err);
  gsel_comm_options_init(&options, sizeof options);
  options.id = &ids[2];
  options.world_size = run->world_size;
  rank_fails(run, gsel_comm_merge(small, 2, &options, &large, &err), err, GSEL_ERR_ARG, "high is 2; expected 0 or 1",
             -1);
  if (is_high && part.world_size == 2) {
    rank_fails(run, gsel_comm_merge(small, part.rank, &options, &large, &err), err, GSEL_ERR_MISMATCH,
               "gsel_comm_merge: rank 1 grows to 4 ranks as rank 3, rank 0 to 4 as rank 0", 1);
    rank_check(run, works(small, part.rank, &err));
  }
  rank_ok(run, gsel_comm_merge(small, is_high, &options, &large, &err), err);
  const int32_t rank = is_high ? run->rank : part.rank;
  rank_check(run, gsel_comm_rank(large) == rank && gsel_comm_world_size(large) == run->world_size);
  rank_check(run, works(large, rank, &err));
  rank_check(run, works(small, part.rank, &err));
  gsel_comm_free(small);
  rank_check(run, works(large, rank, &err));
  gsel_comm_free(large);
}

static void test_two_communicators_are_merged(void** state) {
  (void)state;
  for (int32_t n = 3; n <= 4; ++n) {
    gsel_unique_id ids[3];
    for (int i = 0; i < 3; ++i) assert_int_equal(gsel_unique_id_create(&ids[i], NULL), GSEL_OK);
    as_processes(n, merges, ids);
    for (int i = 0; i < 3; ++i) assert_int_equal(gsel_unique_id_create(&ids[i], NULL), GSEL_OK);
    as_threads(n, merges, ids);
  }
}

/* Both low: two ranks have one number. */
static void merges_wrongly(rank_run* run) {
  const gsel_unique_id* ids = run->user;
  gsel_error* err = NULL;
  gsel_comm *alone, *large;
  gsel_comm_options options;
  gsel_comm_options_init(&options, sizeof options);
  options.id = &ids[run->rank];
  options.world_size = 1;
  rank_ok(run, gsel_comm_init(&options, &alone, &err), err);
  options.id = &ids[2];
  options.world_size = 2;
  options.join_timeout_s = 20;
  const gsel_status status = gsel_comm_merge(alone, 0, &options, &large, &err);
  rank_check(run, status == GSEL_ERR_MISMATCH || status == GSEL_ERR_DUPLICATE);
  gsel_error_free(err);
  gsel_comm_free(alone);
}

static void test_communicators_that_are_both_low_are_not_merged(void** state) {
  (void)state;
  gsel_unique_id ids[3];
  for (int i = 0; i < 3; ++i) assert_int_equal(gsel_unique_id_create(&ids[i], NULL), GSEL_OK);
  as_processes(2, merges_wrongly, ids);
}

static void grows_wrongly(rank_run* run) {
  gsel_error* err = NULL;
  gsel_comm *comm, *large;
  gsel_comm_options options;
  gsel_unique_id id = run->id;
  rank_ok(run, rank_join(run, &comm, &err), err);
  gsel_comm_options_init(&options, sizeof options);
  options.world_size = 4;
  rank_fails(run, gsel_comm_grow(comm, &options, &large, &err), err, GSEL_ERR_ARG, "the config has no id", -1);
  options.id = &id;
  options.world_size = 1;
  rank_fails(run, gsel_comm_grow(comm, &options, &large, &err), err, GSEL_ERR_ARG, "world_size is 1", -1);
  options.world_size = 3 + run->rank;
  rank_fails(run, gsel_comm_grow(comm, &options, &large, &err), err, GSEL_ERR_MISMATCH,
             "rank 1 grows to 4 ranks as rank 1, rank 0 to 3 as rank 0", 1);
  options.world_size = 3;
  id.bytes[5] ^= (uint8_t)run->rank;
  rank_fails(run, gsel_comm_grow(comm, &options, &large, &err), err, GSEL_ERR_MISMATCH, "by another id", 1);
  id.bytes[5] ^= (uint8_t)run->rank;
  options.join_timeout_s = run->rank == 0 ? 0.2 : 60; /* rank 0 tells the other */
  rank_fails(run, gsel_comm_grow(comm, &options, &large, &err), err, GSEL_ERR_TIMEOUT, "", -1);
  rank_check(run, large == NULL && works(comm, run->rank, &err));
  gsel_comm_free(comm);
}

static void test_growing_needs_one_id_and_size_and_somebody_to_come(void** state) {
  (void)state;
  as_processes(2, grows_wrongly, NULL);
}

static void forks(rank_run* run) {
  gsel_error* err = NULL;
  gsel_comm *comm, *child_of, *out;
  gsel_trace* trace;
  rank_ok(run, rank_join(run, &comm, &err), err);
  rank_ok(run, gsel_comm_split(comm, 0, 0, &child_of, &err), err);
  const pid_t pid = fork();
  if (pid == 0) {
    int refused = gsel_comm_split(child_of, 0, 0, &out, NULL) == GSEL_ERR_FORKED &&
                  gsel_comm_dup(comm, &out, NULL) == GSEL_ERR_FORKED &&
                  gsel_comm_shrink(comm, &out, NULL) == GSEL_ERR_FORKED &&
                  gsel_comm_resync(child_of, NULL) == GSEL_ERR_FORKED &&
                  gsel_comm_set_timeout(child_of, 1, NULL) == GSEL_ERR_FORKED &&
                  gsel_comm_trace(comm, &trace, NULL) == GSEL_ERR_FORKED && !trace;
    gsel_comm_free(comm);
    gsel_comm_free(child_of);
    /* a child of its own may join as any process, with a thread of its own */
    gsel_unique_id id = run->id;
    id.bytes[0] ^= (uint8_t)(1 + run->rank);
    gsel_comm_options options;
    gsel_comm_options_init(&options, sizeof options);
    options.id = &id;
    options.world_size = 2;
#if defined(__SANITIZE_THREAD__)
    options.flags = GSEL_COMM_NO_THREAD; /* the sanitizer takes no threads in such a child */
#endif
    options.rank = fork() == 0;
    if (gsel_comm_init(&options, &comm, NULL) != GSEL_OK || !works(comm, options.rank, NULL)) _exit(3);
    refused = refused && entries_of("/proc/self/task") == 2 + 1 + (options.flags == 0); /* with . and .. */
    gsel_comm_free(comm);
    if (options.rank == 0) {
      int status = 1;
      wait(&status);
      refused = refused && status == 0;
    }
    _exit(refused ? 0 : 1);
  }
  int status = 1;
  waitpid(pid, &status, 0);
  rank_check(run, status == 0);
  rank_check(run, works(child_of, run->rank, &err) && works(comm, run->rank, &err));
  gsel_comm_free(child_of);
  gsel_comm_free(comm);
}

static void test_a_forked_child_is_refused_and_may_join_anew(void** state) {
  (void)state;
  as_processes(2, forks, NULL);
}

static void joins_with_and_without_a_thread(rank_run* run) {
  gsel_error* err = NULL;
  gsel_comm *comm, *second;
  gsel_comm_options options;
  const int before = entries_of("/proc/self/task");
  gsel_comm_options_init(&options, sizeof options);
  options.id = &run->id;
  options.world_size = run->world_size;
  options.rank = run->rank;
  options.flags = run->rank == 0 ? GSEL_COMM_NO_THREAD : 0;
  rank_ok(run, gsel_comm_init(&options, &comm, &err), err);
  rank_ok(run, gsel_comm_dup(comm, &second, &err), err);
  const int expected = before + (run->rank != 0 && run->world_size > 1);
  rank_check(run, entries_of("/proc/self/task") == expected);
  rank_check(run, works(comm, run->rank, &err) && works(second, run->rank, &err));
  gsel_comm_free(comm);
  rank_check(run, entries_of("/proc/self/task") == expected);
  rank_check(run, works(second, run->rank, &err));
  gsel_comm_free(second);
  /* A thread that was joined leaves the list of the kernel a moment later. */
  for (int turn = 0; entries_of("/proc/self/task") != before && turn < 10000; ++turn) usleep(100);
  rank_check(run, entries_of("/proc/self/task") == before);
}

static void test_one_thread_watches_until_the_last_communicator_unless_refused(void** state) {
  (void)state;
  as_processes(1, joins_with_and_without_a_thread, NULL);
  as_processes(3, joins_with_and_without_a_thread, NULL);
}

/* Ranks 3 and 1 of 4 make one, and again while a message is under way; the others do nothing. */
static void members_only(rank_run* run) {
  gsel_error* err;
  gsel_comm *comm, *few = NULL;
  const int32_t ranks[] = {3, 1}, twice[] = {1, 1}, beyond[] = {run->rank, 4}, others[] = {0, 2};
  rank_ok(run, rank_join(run, &comm, &err), err);
  if (run->rank == 3 || run->rank == 1) {
    const int32_t me = run->rank == 3 ? 0 : 1;
    for (int round = 0; round < 3; ++round) {
      int32_t x = run->rank, sum = 0;
      rank_ok(run, gsel_comm_create_group(comm, ranks, 2, &few, &err), err);
      rank_check(run, gsel_comm_rank(few) == me && gsel_comm_world_size(few) == 2);
      rank_ok(run, gsel_allreduce(few, &x, &sum, 1, GSEL_I32, GSEL_SUM, &err), err);
      rank_check(run, sum == 4);
      gsel_comm_free(few);
    }
    const int32_t own[] = {3, 1, 0}; /* one of them says so */
    if (run->rank == 3)
      rank_fails(run, gsel_comm_create_group(comm, ranks, 2, &few, &err), err, GSEL_ERR_MISMATCH,
                 "rank 3 and rank 1 give other lists", 1);
    else
      rank_fails(run, gsel_comm_create_group(comm, own, 3, &few, &err), err, GSEL_ERR_MISMATCH,
                 "rank 3 and rank 1 give other lists", 1);
    rank_check(run, few == NULL);
  }
  rank_ok(run, gsel_comm_create_group(comm, &run->rank, 1, &few, &err), err);
  rank_check(run, gsel_comm_world_size(few) == 1);
  gsel_comm_free(few);
  rank_fails(run, gsel_comm_create_group(comm, twice, 2, &few, &err), err, GSEL_ERR_ARG, "rank 1 is named twice", -1);
  rank_fails(run, gsel_comm_create_group(comm, beyond, 2, &few, &err), err, GSEL_ERR_ARG, "4 is not a rank", -1);
  rank_fails(run, gsel_comm_create_group(comm, ranks, 5, &few, &err), err, GSEL_ERR_ARG, "n is 5; use 1 to 4", -1);
  rank_fails(run, gsel_comm_create_group(comm, run->rank % 2 ? others : ranks, 2, &few, &err), err, GSEL_ERR_ARG,
             "does not name rank", -1);
  rank_ok(run, gsel_barrier(comm, &err), err);
  gsel_comm_free(comm);
}

static void test_members_alone_make_a_communicator(void** state) {
  (void)state;
  as_threads(4, members_only, NULL);
  as_processes(4, members_only, NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_members_alone_make_a_communicator),
      cmocka_unit_test(test_a_split_goes_by_colour_then_key_then_rank),
      cmocka_unit_test(test_a_split_can_be_split),
      cmocka_unit_test(test_duplicates_do_not_meet),
      cmocka_unit_test(test_a_split_against_another_call_is_a_mismatch),
      cmocka_unit_test(test_a_communicator_grows_by_newcomers),
      cmocka_unit_test(test_growing_needs_one_id_and_size_and_somebody_to_come),
      cmocka_unit_test(test_two_communicators_are_merged),
      cmocka_unit_test(test_communicators_that_are_both_low_are_not_merged),
      cmocka_unit_test(test_a_forked_child_is_refused_and_may_join_anew),
      cmocka_unit_test(test_one_thread_watches_until_the_last_communicator_unless_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
