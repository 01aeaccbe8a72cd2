/* faults/test_comm_group.c: some ranks of a broken communicator make one of their own, whoever is dead, late or has
 * given up meanwhile. */
#include <stdlib.h>
#include <time.h>

#include "support/ranks.h"

static const int32_t all[] = {0, 1, 2};

struct stage {
  volatile int at[RANKS_MAX]; /* how far a rank is */
};

static double seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Joins, and the communicator is broken. */
static gsel_comm* join_broken(rank_run* run) {
  gsel_error* err = NULL;
  gsel_comm* comm = NULL;
  run->timeout_s = 20;
  const gsel_status status = rank_join(run, &comm, &err);
  if (status == GSEL_OK) gsel_comm_abort(comm, gsel_str_from("enough"));
  gsel_error_free(err);
  return comm;
}

/* Of the ranks' numbers in the first communicator, over those of this one. */
static int32_t sum_of(const rank_run* run, gsel_comm* comm) {
  int32_t sum = 0;
  const int32_t me = run->rank;
  return gsel_allreduce(comm, &me, &sum, 1, GSEL_I32, GSEL_SUM, NULL) == GSEL_OK ? sum : -1;
}

/* Of a broken communicator of 5: ranks 3 and 0 make groups, and 0, 2 and 3 one; rank 1 is dead, and rank 4 does not
 * call, until it is called for again. */
static void makes_groups_of_a_broken_one(rank_run* run) {
  struct stage* s = run->user;
  gsel_error* err = NULL;
  gsel_comm *comm, *few;
  const int32_t pair[] = {3, 0}, three[] = {0, 2, 3}, with_dead[] = {0, 1}, with_late[] = {4, 0};
  const int32_t four_with_dead[] = {0, 2, 3, 1}, four_with_late[] = {0, 2, 3, 4};
  run->timeout_s = 20;
  rank_ok(run, rank_join(run, &comm, &err), err);
  if (run->rank == 1) raise(SIGKILL);
  rank_fails(run, gsel_barrier(comm, &err), err, GSEL_ERR_PEER, "rank 1 (pid ", 1);
  for (int round = 0; round < 3 && run->rank % 3 == 0; ++round) {
    rank_ok(run, gsel_comm_create_group(comm, pair, 2, &few, &err), err);
    rank_check(run, gsel_comm_rank(few) == (run->rank == 0) && gsel_comm_world_size(few) == 2);
    rank_check(run, sum_of(run, few) == 3);
    gsel_comm_free(few);
  }
  if (run->rank != 4) {
    rank_ok(run, gsel_comm_create_group(comm, three, 3, &few, &err), err);
    rank_check(run, sum_of(run, few) == 0 + 2 + 3);
    gsel_comm_free(few);
    /* The founder tells nobody what it waits for; each names the rank that is missing. */
    rank_fails(run, gsel_comm_create_group(comm, four_with_dead, 4, &few, &err), err, GSEL_ERR_PEER, "rank 1 (pid ", 1);
    rank_ok(run, gsel_comm_set_timeout(comm, 0.5, &err), err);
    rank_fails(run, gsel_comm_create_group(comm, four_with_late, 4, &few, &err), err, GSEL_ERR_TIMEOUT, "rank 4 (pid ",
               4);
    rank_ok(run, gsel_comm_set_timeout(comm, 20, &err), err);
  }
  if (run->rank == 0) {
    rank_fails(run, gsel_comm_create_group(comm, with_dead, 2, &few, &err), err, GSEL_ERR_PEER, "rank 1 (pid ", 1);
    rank_ok(run, gsel_comm_set_timeout(comm, 0.2, &err), err);
    rank_fails(run, gsel_comm_create_group(comm, with_late, 2, &few, &err), err, GSEL_ERR_TIMEOUT, "rank 4 (pid ", 4);
    rank_ok(run, gsel_comm_set_timeout(comm, 20, &err), err);
    reach_step(&s->at[0], 1);
  }
  if (run->rank == 4) await_step(&s->at[0], 1);
  if (run->rank % 4 == 0) {
    rank_ok(run, gsel_comm_create_group(comm, with_late, 2, &few, &err), err);
    rank_check(run, gsel_comm_rank(few) == (run->rank == 0));
    rank_ok(run, gsel_barrier(few, &err), err);
    gsel_comm_free(few);
  }
  gsel_comm_free(comm);
}

/* Lists in a row: who has found a group goes on to the next one before its founder has looked. */
static void makes_groups_in_a_row(rank_run* run) {
  gsel_error* err = NULL;
  gsel_comm *comm, *few;
  const int32_t rest[] = {1, 2}, turned[] = {2, 1};
  run->timeout_s = 20;
  rank_ok(run, rank_join(run, &comm, &err), err);
  gsel_comm_abort(comm, gsel_str_from("enough"));
  const double began = seconds();
  for (int round = 0; round < 50; ++round) {
    rank_ok(run, gsel_comm_create_group(comm, all, 3, &few, &err), err);
    gsel_comm_free(few);
    for (int turn = 0; turn < 2 && run->rank > 0; ++turn) {
      rank_ok(run, gsel_comm_create_group(comm, turn ? turned : rest, 2, &few, &err), err);
      rank_check(run, gsel_comm_world_size(few) == 2);
      gsel_comm_free(few);
    }
  }
  rank_check(run, seconds() - began < 15); /* nobody has waited for the timeout */
  gsel_comm_free(comm);
}

static void groups_of_a_broken_communicator_are_made_in_a_row(void** state) {
  (void)state;
  as_processes(3, makes_groups_in_a_row, NULL);
}

static void await(pid_t pid, rank_run* run, int killed) {
  int status = 0;
  waitpid(pid, &status, 0);
  if (!killed && status != 0 && !run->failure[0])
    snprintf(run->failure, sizeof run->failure, "rank %d ended with wait status 0x%x", (int)run->rank,
             (unsigned)status);
}

static void ranks_of_a_broken_communicator_make_groups(void** state) {
  (void)state;
  struct stage* s = shared_memory(sizeof *s);
  rank_run* runs = ranks_prepare(5, s);
  pid_t pids[5];
  for (int32_t r = 0; r < 5; ++r) pids[r] = rank_fork(&runs[r], makes_groups_of_a_broken_one);
  for (int32_t r = 0; r < 5; ++r) await(pids[r], &runs[r], r == 1);
  ranks_verdict(runs, 5);
  munmap(s, sizeof *s);
}

/* Rank 2 has given up before the others call; then rank 0, for which rank 1 alone waits. */
static void gives_up(rank_run* run) {
  struct stage* s = run->user;
  gsel_error* err = NULL;
  gsel_comm *few, *comm = join_broken(run);
  rank_check(run, comm != NULL);
  rank_ok(run, gsel_comm_set_timeout(comm, 0.2, &err), err);
  if (run->rank == 2) {
    rank_fails(run, gsel_comm_create_group(comm, all, 3, &few, &err), err, GSEL_ERR_TIMEOUT, "rank 0 (pid ", 0);
    reach_step(&s->at[2], 1);
  } else {
    await_step(&s->at[2], 1);
    rank_fails(run, gsel_comm_create_group(comm, all, 3, &few, &err), err, GSEL_ERR_TIMEOUT, "rank 2 (pid ", 2);
  }
  reach_step(&s->at[run->rank], 2);
  for (int32_t r = 0; r < 3; ++r) await_step(&s->at[r], 2);
  if (run->rank == 0)
    rank_fails(run, gsel_comm_create_group(comm, all, 2, &few, &err), err, GSEL_ERR_TIMEOUT, "rank 1 (pid ", 1);
  reach_step(&s->at[run->rank], 3);
  await_step(&s->at[0], 3);
  if (run->rank == 1)
    rank_fails(run, gsel_comm_create_group(comm, all, 2, &few, &err), err, GSEL_ERR_TIMEOUT, "rank 0 (pid ", 0);
  rank_ok(run, gsel_comm_set_timeout(comm, 20, &err), err);
  rank_ok(run, gsel_comm_create_group(comm, all, 3, &few, &err), err);
  rank_check(run, sum_of(run, few) == 0 + 1 + 2);
  gsel_comm_free(few);
  gsel_comm_free(comm);
}

static void who_has_given_up_on_a_group_is_not_in_it(void** state) {
  (void)state;
  struct stage* s = shared_memory(sizeof *s);
  as_processes(3, gives_up, s);
  munmap(s, sizeof *s);
}

/* Each rank gives up at a moment of its own. A group that it gets works, or names a member that did not wait; in the
 * end, with time enough, all meet. */
static void gives_up_at_any_moment(rank_run* run) {
  struct stage* s = run->user;
  gsel_error* err = NULL;
  gsel_comm *few, *comm = join_broken(run);
  unsigned seed = 77 + (unsigned)run->rank;
  rank_check(run, comm != NULL);
  for (int round = 0; round < 400; ++round) {
    const double timeout = 1e-5 * (double)(1 << rand_r(&seed) % 9);
    rank_ok(run, gsel_comm_set_timeout(comm, timeout, &err), err);
    if (gsel_comm_create_group(comm, all, 3, &few, &err) == GSEL_OK) {
      rank_ok(run, gsel_comm_set_timeout(few, 20, &err), err);
      int32_t sum = 0, one = 1;
      const gsel_status status = gsel_allreduce(few, &one, &sum, 1, GSEL_I32, GSEL_SUM, &err);
      if (status != GSEL_OK) rank_fails(run, status, err, GSEL_ERR_PEER, "left", -2);
      rank_check(run, status != GSEL_OK || sum == 3);
      gsel_comm_free(few);
    }
    gsel_error_free(err);
    err = NULL;
  }
  reach_step(&s->at[run->rank], 1);
  for (int32_t r = 0; r < 3; ++r) await_step(&s->at[r], 1);
  rank_ok(run, gsel_comm_set_timeout(comm, 20, &err), err);
  rank_ok(run, gsel_comm_create_group(comm, all, 3, &few, &err), err);
  rank_check(run, sum_of(run, few) == 0 + 1 + 2);
  gsel_comm_free(few);
  gsel_comm_free(comm);
}

static void groups_of_a_broken_communicator_are_whole_or_named(void** state) {
  (void)state;
  struct stage* s = shared_memory(sizeof *s);
  as_processes(3, gives_up_at_any_moment, s);
  munmap(s, sizeof *s);
}

/* Makes groups until rank r, which is killed at some moment, is told. */
static void makes_groups_until_a_death(rank_run* run) {
  struct stage* s = run->user;
  gsel_error* err = NULL;
  gsel_comm *few, *comm = join_broken(run);
  gsel_status status = GSEL_OK;
  rank_check(run, comm != NULL);
  reach_step(&s->at[run->rank], 1);
  while (status == GSEL_OK) {
    status = gsel_comm_create_group(comm, all, 3, &few, &err);
    if (status != GSEL_OK) break;
    status = gsel_barrier(few, &err);
    gsel_comm_free(few);
  }
  rank_fails(run, status, err, GSEL_ERR_PEER, "", s->at[3]);
  gsel_comm_free(comm);
}

static void a_death_at_any_moment_is_named(void** state) {
  (void)state;
  unsigned seed = 5;
  for (int round = 0; round < 12; ++round) {
    struct stage* s = shared_memory(sizeof *s);
    rank_run* runs = ranks_prepare(3, s);
    const int32_t victim = s->at[3] = round % 3;
    pid_t pids[3];
    for (int32_t r = 0; r < 3; ++r) pids[r] = rank_fork(&runs[r], makes_groups_until_a_death);
    for (int32_t r = 0; r < 3; ++r) await_step(&s->at[r], 1);
    usleep((useconds_t)rand_r(&seed) % 3000);
    kill(pids[victim], SIGKILL);
    for (int32_t r = 0; r < 3; ++r) await(pids[r], &runs[r], r == victim);
    ranks_verdict(runs, 3);
    munmap(s, sizeof *s);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(ranks_of_a_broken_communicator_make_groups),
      cmocka_unit_test(groups_of_a_broken_communicator_are_made_in_a_row),
      cmocka_unit_test(who_has_given_up_on_a_group_is_not_in_it),
      cmocka_unit_test(groups_of_a_broken_communicator_are_whole_or_named),
      cmocka_unit_test(a_death_at_any_moment_is_named),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
