/* unit/test_comm_making.c: communicators that are made while their callers go on: each works, a split has its place
 * among the collectives, a group and a shrink hold nobody up, and what cannot be is told. */
#include <poll.h>

#include "support/ranks.h"

enum { WORLD = 4, ROUNDS = 20 };

static int works(gsel_comm* comm, gsel_error** err) {
  int32_t one = 1;
  return gsel_allreduce(comm, &one, &one, 1, GSEL_I32, GSEL_SUM, err) == GSEL_OK && one == gsel_comm_world_size(comm);
}

static gsel_status taken(gsel_request* request, gsel_comm** out, gsel_error** err) {
  gsel_status status = gsel_request_wait(request, err);
  if (status == GSEL_OK) status = gsel_request_take_comm(request, out, err);
  gsel_request_free(request);
  return status;
}

static gsel_collective sum_of(int64_t* x) {
  gsel_collective call = GSEL_COLLECTIVE_INIT;
  call.kind = GSEL_COLLECTIVE_ALLREDUCE, call.dtype = GSEL_I64, call.op = GSEL_SUM;
  call.send = x, call.recv = x, call.count = 1;
  return call;
}

/* A split between two sums that are started, a dup that some ranks make in its blocking form, blocking calls behind. */
static void keeps_its_place(rank_run* run) {
  gsel_error* err = NULL;
  gsel_comm *comm, *parity, *copy;
  rank_ok(run, rank_join(run, &comm, &err), err);
  for (int round = 0; round < ROUNDS; ++round) {
    int64_t before = 1, behind = 2;
    const gsel_collective first = sum_of(&before), second = sum_of(&behind);
    gsel_request *sums[2], *split, *dup = NULL;
    rank_ok(run, gsel_comm_start(comm, &first, &sums[0], &err), err);
    rank_ok(run,
            gsel_comm_start_split(comm, round % 3 && run->rank == 1 ? -1 : run->rank % 2, -run->rank, &split, &err),
            err);
    rank_ok(run, gsel_comm_start(comm, &second, &sums[1], &err), err);
    if (run->rank == round % WORLD)
      rank_ok(run, gsel_comm_dup(comm, &copy, &err), err);
    else
      rank_ok(run, gsel_comm_start_dup(comm, &dup, &err), err);
    rank_check(run, works(comm, &err));
    if (dup) rank_ok(run, taken(dup, &copy, &err), err);
    for (int i = 0; i < 2; ++i) {
      rank_ok(run, gsel_request_wait(sums[i], &err), err);
      gsel_request_free(sums[i]);
    }
    rank_check(run, before == WORLD && behind == 2 * WORLD);
    rank_ok(run, gsel_request_wait(split, &err), err);
    rank_ok(run, gsel_request_take_comm(split, &parity, &err), err);
    rank_check(run, (parity == NULL) == (round % 3 && run->rank == 1));
    gsel_comm* again = comm;
    rank_ok(run, gsel_request_take_comm(split, &again, &err), err);
    rank_check(run, again == NULL);
    gsel_request_free(split);
    if (parity) rank_check(run, works(parity, &err) && gsel_comm_rank(parity) < gsel_comm_world_size(parity));
    rank_check(run, works(copy, &err) && gsel_comm_rank(copy) == run->rank);
    gsel_comm_free(parity);
    gsel_comm_free(copy);
  }
  gsel_comm_free(comm);
}

/* The group's ranks go on with collectives of all and with messages; its last rank asks for it late. */
static void holds_nobody_up(rank_run* run) {
  const int32_t list[] = {2, 0};
  gsel_error* err = NULL;
  gsel_comm *comm, *group = NULL;
  gsel_request* request = NULL;
  rank_ok(run, rank_join(run, &comm, &err), err);
  for (int round = 0; round < ROUNDS; ++round) {
    if (run->rank == 2) rank_ok(run, gsel_comm_start_create_group(comm, list, 2, &request, &err), err);
    for (int i = 0; i < 10; ++i) rank_check(run, works(comm, &err));
    int32_t done = 1;
    if (run->rank == 2) rank_ok(run, gsel_request_test(request, &done, &err), err);
    rank_check(run, run->rank != 2 || !done);
    rank_ok(run, gsel_barrier(comm, &err), err);
    if (run->rank == 0) rank_ok(run, gsel_comm_start_create_group(comm, list, 2, &request, &err), err);
    for (int i = 0; i < 10; ++i) rank_check(run, works(comm, &err));
    if (run->rank % 2) continue;
    rank_ok(run, taken(request, &group, &err), err);
    rank_check(run, gsel_comm_rank(group) == (run->rank == 0) && works(group, &err));
    gsel_comm_free(group);
  }
  gsel_comm_free(comm);
}

/* Without a rank that leaves, and without one that is named. */
static void shrinks(rank_run* run) {
  const int32_t named = 1;
  gsel_error* err = NULL;
  gsel_comm *comm, *left, *fewer;
  gsel_request* request;
  rank_ok(run, rank_join(run, &comm, &err), err);
  rank_ok(run, gsel_barrier(comm, &err), err);
  if (run->rank == 3) return gsel_comm_free(comm);
  rank_ok(run, gsel_comm_start_shrink(comm, NULL, 0, &request, &err), err);
  rank_ok(run, taken(request, &left, &err), err);
  rank_check(run, gsel_comm_world_size(left) == WORLD - 1 && works(left, &err));
  gsel_comm_free(comm);
  if (run->rank == 1) return gsel_comm_free(left);
  rank_ok(run, gsel_comm_start_shrink(left, &named, 1, &request, &err), err);
  rank_ok(run, taken(request, &fewer, &err), err);
  rank_check(run, gsel_comm_world_size(fewer) == 2 && works(fewer, &err));
  gsel_comm_free(left);
  gsel_comm_free(fewer);
}

/* The end comes through a completion queue. */
static void is_told(rank_run* run) {
  gsel_error* err = NULL;
  gsel_comm *comm, *copy, *group;
  gsel_queue* queue;
  gsel_request* requests[2];
  void* user = NULL;
  int32_t all[WORLD];
  for (int32_t q = 0; q < WORLD; ++q) all[q] = q;
  rank_ok(run, rank_join(run, &comm, &err), err);
  rank_ok(run, gsel_queue_create(&queue, &err), err);
  rank_ok(run, gsel_comm_start_dup(comm, &requests[0], &err), err);
  rank_ok(run, gsel_comm_start_create_group(comm, all, WORLD, &requests[1], &err), err);
  for (int i = 0; i < 2; ++i) rank_ok(run, gsel_request_notify(requests[i], queue, &requests[i], &err), err);
  for (int i = 0; i < 2; ++i) {
    struct pollfd ready = {gsel_queue_fd(queue), POLLIN, 0};
    rank_check(run, poll(&ready, 1, 20000) == 1);
    int32_t there = 0;
    rank_ok(run, gsel_queue_next(queue, 1, &there, &user, &err), err);
    rank_check(run, there && (user == &requests[0] || user == &requests[1]));
  }
  rank_ok(run, taken(requests[0], &copy, &err), err);
  rank_ok(run, taken(requests[1], &group, &err), err);
  rank_check(run, works(copy, &err) && works(group, &err));
  gsel_comm_free(group);
  gsel_comm_free(copy);
  gsel_queue_free(queue);
  gsel_comm_free(comm);
}

static void is_refused(rank_run* run) {
  const int32_t twice[] = {0, 0}, others[] = {1};
  int64_t x = 1;
  gsel_error* err = NULL;
  gsel_comm *comm, *out = NULL;
  gsel_request* request;
  rank_ok(run, rank_join(run, &comm, &err), err);
  rank_fails(run, gsel_comm_start_create_group(comm, twice, 2, &request, &err), err, GSEL_ERR_ARG, "named twice", -1);
  rank_fails(run, gsel_comm_start_create_group(comm, twice, 99, &request, &err), err, GSEL_ERR_ARG, "99", -1);
  rank_fails(run, gsel_comm_start_create_group(comm, NULL, 1, &request, &err), err, GSEL_ERR_ARG, "ranks", -1);
  if (run->rank == 0)
    rank_fails(run, gsel_comm_start_create_group(comm, others, 1, &request, &err), err, GSEL_ERR_ARG, "does not name",
               -1);
  rank_fails(run, gsel_comm_start_dup(NULL, &request, &err), err, GSEL_ERR_ARG, "comm", -1);
  const gsel_collective sum = sum_of(&x);
  rank_ok(run, gsel_comm_start(comm, &sum, &request, &err), err);
  rank_fails(run, gsel_request_take_comm(request, &out, &err), err, GSEL_ERR_ARG, "makes no communicator", -1);
  rank_ok(run, gsel_request_wait(request, &err), err);
  gsel_request_free(request);
  if (run->rank == 0) {
    int32_t done = 1;
    rank_ok(run, gsel_comm_start_dup(comm, &request, &err), err);
    rank_fails(run, gsel_request_take_comm(request, &out, &err), err, GSEL_ERR_STATE, "wait for it", -1);
    rank_ok(run, gsel_request_wait_for(request, 0.01, &done, &err), err);
    rank_check(run, !done);
    rank_ok(run, gsel_request_cancel(request, &done, &err), err);
    rank_check(run, !done);
    reach_step(run->user, 1);
    rank_ok(run, taken(request, &out, &err), err);
  } else {
    await_step(run->user, 1);
    rank_ok(run, gsel_comm_dup(comm, &out, &err), err);
  }
  rank_check(run, works(out, &err));
  gsel_comm_free(out);
  rank_ok(run, gsel_comm_start_dup(comm, &request, &err), err);
  gsel_request_free(request); /* waits, and frees what was not taken */
  rank_ok(run, gsel_comm_start_dup(comm, &request, &err), err);
  gsel_comm_abort(comm, gsel_str_from("enough"));
  const gsel_status status = gsel_request_wait(request, &err);
  rank_check(run, status == GSEL_OK || status == GSEL_ERR_ABORTED);
  gsel_error_free(err);
  gsel_request_free(request);
  gsel_comm_free(comm);
}

/* A communicator that goes while a group of it is made, which the other rank never asks for. */
static void ends_with_its_communicator(rank_run* run) {
  const int32_t both[] = {0, 1};
  gsel_error* err = NULL;
  gsel_comm* comm;
  gsel_request* request;
  rank_ok(run, rank_join(run, &comm, &err), err);
  rank_ok(run, gsel_barrier(comm, &err), err);
  if (run->rank == 0) {
    rank_ok(run, gsel_comm_start_create_group(comm, both, 2, &request, &err), err);
    usleep(20000);
    gsel_comm_free(comm);
    rank_fails(run, gsel_request_wait(request, &err), err, GSEL_ERR_ABORTED, "requests under way", 0);
    gsel_request_free(request);
    reach_step(run->user, 1);
  } else {
    await_step(run->user, 1);
    gsel_comm_free(comm);
  }
}

static void without_a_thread(rank_run* run) {
  gsel_error* err = NULL;
  gsel_comm* comm;
  gsel_request* request;
  gsel_comm_options options;
  gsel_comm_options_init(&options, sizeof options);
  options.rank = run->rank, options.world_size = run->world_size, options.id = &run->id;
  options.flags = GSEL_COMM_NO_THREAD;
  rank_ok(run, gsel_comm_init(&options, &comm, &err), err);
  const int32_t self = run->rank;
  rank_fails(run, gsel_comm_start_dup(comm, &request, &err), err, GSEL_ERR_UNSUPPORTED, "GSEL_COMM_NO_THREAD", -1);
  rank_fails(run, gsel_comm_start_create_group(comm, &self, 1, &request, &err), err, GSEL_ERR_UNSUPPORTED,
             "GSEL_COMM_NO_THREAD", -1);
  rank_check(run, works(comm, &err));
  gsel_comm_free(comm);
}

static void as_both(int32_t ranks, rank_body body, void* user) {
  if (user) memset(user, 0, sizeof(int32_t));
  as_threads(ranks, body, user);
  if (user) memset(user, 0, sizeof(int32_t));
  as_processes(ranks, body, user);
}

static void test_a_split_and_a_dup_have_their_place(void** state) {
  (void)state;
  as_both(WORLD, keeps_its_place, NULL);
}
static void test_a_group_holds_nobody_up(void** state) {
  (void)state;
  as_both(WORLD, holds_nobody_up, NULL);
}
static void test_a_shrink_goes_on_without_ranks(void** state) {
  (void)state;
  as_both(WORLD, shrinks, NULL);
}
static void test_the_end_comes_through_a_queue(void** state) {
  (void)state;
  as_both(WORLD, is_told, NULL);
}
static void test_what_cannot_be_is_refused(void** state) {
  (void)state;
  void* word = shared_memory(sizeof(int32_t));
  as_both(2, is_refused, word);
  munmap(word, sizeof(int32_t));
}
static void test_it_ends_with_its_communicator(void** state) {
  (void)state;
  void* word = shared_memory(sizeof(int32_t));
  as_both(2, ends_with_its_communicator, word);
  munmap(word, sizeof(int32_t));
}
static void test_without_a_thread_it_is_unsupported(void** state) {
  (void)state;
  as_both(2, without_a_thread, NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_a_split_and_a_dup_have_their_place), cmocka_unit_test(test_a_group_holds_nobody_up),
      cmocka_unit_test(test_a_shrink_goes_on_without_ranks),     cmocka_unit_test(test_the_end_comes_through_a_queue),
      cmocka_unit_test(test_what_cannot_be_is_refused),          cmocka_unit_test(test_it_ends_with_its_communicator),
      cmocka_unit_test(test_without_a_thread_it_is_unsupported),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
